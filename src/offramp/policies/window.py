"""Window: the second stage of ELBERT, which looks at how the last few exits' probabilities moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import Policy, State, probabilities

RULES = ("same_side", "trend", "stable")


@dataclass(frozen=True)
class Window(Policy):
    """Leave once the last `size` exits tell one story. Which story is the rule:

    `same_side`  all of them are on the same side of the decision, by more than `margin` (ELBERT: bias_1)
    `trend`      the oldest is on one side, and the probability has not moved back since (bias_2)
    `stable`     same side, and the probability stayed within `range` (bias_3)

    With two classes x_i = P_i(class 0), and the sides are x > ½ + margin and x < ½ − margin, as published. With more
    classes x_i is the probability of the label predicted *now*, and its side is won where it leads every other class by
    more than 2·margin: the same rule for C = 2, and no exit while the prediction flips between other classes.
    `published=True` looks at class 0 whatever C is, as the released code does.
    """

    size: int
    rule: str = "same_side"
    margin: float = 0.0
    range: float = 0.1
    published: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size < 1:
            raise OfframpError(f"a window holds at least one exit, not {self.size}")
        if self.rule not in RULES:
            raise OfframpError(f"window rule {self.rule!r}: use one of {', '.join(RULES)}")

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        seen = probabilities(logits).unsqueeze(1)  # (B, 1, C)
        window = seen if state is None else torch.cat([state, seen], 1)[:, -self.size :]  # (B, ≤N, C)
        if window.shape[1] < self.size:
            return torch.zeros(len(logits), dtype=torch.bool, device=logits.device), window
        return self.settled(window), window

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        return [cls(size, rule) for rule in RULES for size in range(1, len(exit_layers))]

    @classmethod
    def from_papers(cls, task: str) -> list[Policy]:
        return [cls(size) for size in range(2, 13)]

    def settled(self, window: Tensor) -> Tensor:
        """Whether the rule holds on a full window of probabilities: (B, N, C) to (B,)."""
        x, high, low = self.sides(window)  # each (B, N)
        if self.rule == "trend":
            move = x.diff(dim=1)  # (B, N-1)
            return (high[:, 0] & (move >= 0).all(1)) | (low[:, 0] & (move <= 0).all(1))
        same_side = high.all(1) | low.all(1)
        if self.rule == "same_side":
            return same_side
        return same_side & (x.amax(1) - x.amin(1) <= self.range)

    def sides(self, window: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The watched probability, and where it is on the high and on the low side of the decision."""
        if window.shape[-1] == 2 or self.published:
            x = window[:, :, 0]
            return x, x > 0.5 + self.margin, x < 0.5 - self.margin
        label = window[:, -1:].argmax(-1, keepdim=True).expand(-1, self.size, 1)  # (B, N, 1) predicted now
        x = window.gather(-1, label).squeeze(-1)
        best_other = window.scatter(-1, label, -1.0).amax(-1)
        return x, x - best_other > 2 * self.margin, torch.zeros_like(x, dtype=torch.bool)
