"""Policies made of policies: `a | b` leaves when either says so, `a & b` when both do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import Policy, State


@dataclass(frozen=True)
class Combined(Policy):
    """Several rules, stepped side by side, each with its own state."""

    of: tuple[Policy, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.of) < 2:
            raise OfframpError(f"{self.name} combines at least two policies")

    def check(self, task: str, exit_layers: Sequence[int]) -> None:
        for policy in self.of:
            policy.check(task, exit_layers)

    def start(self, samples: Tensor) -> State:
        return tuple(policy.start(samples) for policy in self.of)

    def votes(self, layer: int, logits: Tensor, state: State) -> tuple[list[Tensor], State]:
        steps = [policy.step(layer, logits, own) for policy, own in zip(self.of, state, strict=True)]
        return [leave for leave, _ in steps], tuple(after for _, after in steps)


@dataclass(frozen=True)
class Either(Combined):
    """Leave when any of the rules says so: `Entropy(0.1, normalised=True) | Window(8)` is ELBERT's two stages."""

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        votes, state = self.votes(layer, logits, state)
        return reduce(or_, votes), state


@dataclass(frozen=True)
class Both(Combined):
    """Leave when all of the rules say so at the same exit: `Patience(2) & Confidence(0.8)` is PCEE-BERT's idea."""

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        votes, state = self.votes(layer, logits, state)
        return reduce(and_, votes), state
