"""Patience: PABEE's rule as ElasticBERT uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import EVERY_TASK, Policy, State, choices
from offramp.policies.threshold import spread_thresholds

TOLERANCES = 9
"""Tolerances for each patience in a sweep."""


@dataclass(frozen=True)
class Patience(Policy):
    """Leave once `patience` exits in a row have repeated the answer of the one before them.

    An answer is repeated if the predicted label is the same, for spans if both the best start and the best end are, or,
    in regression, if it moved by less than `tolerance`.
    The earliest way out is exit `patience` + 1.
    """

    tasks = EVERY_TASK

    patience: int
    tolerance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.patience < 1:
            raise OfframpError(
                f"patience must be 1 or more, not {self.patience}: to leave at a given layer use fixed(layer)"
            )

    def check(self, task: str, exit_layers: Sequence[int]) -> None:
        super().check(task, exit_layers)
        if task == "regression" and self.tolerance is None:
            raise OfframpError(
                f"patience on regression needs a tolerance: use patience({self.patience}, tolerance=0.5)"
            )

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        is_number = logits.shape[-1] == 1
        answer = logits if is_number else choices(logits).argmax(-1)  # (B, 1), or (B, 2) for spans
        if state is None:
            agreed = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
        else:
            before, agreed = state
            same = (answer - before).abs() < (self.tolerance or 0.0) if is_number else answer == before
            agreed = torch.where(same.all(-1), agreed + 1, 0)
        return agreed >= self.patience, (answer, agreed)

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        every = range(1, len(exit_layers))
        if task != "regression":
            return [cls(patience) for patience in every]
        return [cls(p, t) for p in every for t in tolerances(exit_logits.squeeze(-1), exit_layers, p)]

    @classmethod
    def from_papers(cls, task: str) -> list[Policy]:
        """ElasticBERT's script, which knows labels and numbers."""
        return (
            []
            if task == "span"
            else [cls(patience, 0.94 if task == "regression" else None) for patience in range(2, 8)]
        )


def tolerances(answers: Tensor, exit_layers: Sequence[int], patience: int) -> list[float]:
    """Tolerances (E, N) that cover the range of a patience: its signal is the largest of the last `patience` moves."""
    moves = answers.diff(dim=0).abs()  # (E-1, N); the first is known at exit 1
    waiting = torch.full_like(answers[:patience], torch.inf)
    largest = moves.unfold(0, patience, 1).amax(-1)  # (E-patience, N), from exit `patience` on
    return spread_thresholds(torch.cat([waiting, largest])[:-1], exit_layers, points=TOLERANCES)
