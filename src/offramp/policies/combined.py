"""Policies made of policies: `a | b` leaves when either says so, `a & b` when both do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import ClassVar

import numpy as np
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import Policy, State
from offramp.policies.entropy import Entropy
from offramp.policies.threshold import signals_of, spread_thresholds
from offramp.policies.window import Window

THRESHOLDS, SIZES = 9, 5
"""Settings of each stage in a sweep of ELBERT's two stages."""


@dataclass(frozen=True)
class Combined(Policy):
    """Several rules, stepped side by side, each with its own state."""

    sign: ClassVar[str]

    of: tuple[Policy, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.of) < 2:
            raise OfframpError(f"{self.name} combines at least two policies")

    @property
    def curve(self) -> str:
        return f" {self.sign} ".join(f"({p.curve})" if isinstance(p, Combined) else p.curve for p in self.of)

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

    sign = "|"

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        votes, state = self.votes(layer, logits, state)
        return reduce(or_, votes), state

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        """ELBERT's two stages: an early way out by entropy, a later one by a window, at last one that is never full."""
        signals = signals_of(Entropy(0.0, normalised=True), exit_logits, exit_layers)
        thresholds = spread_thresholds(signals, exit_layers, points=THRESHOLDS)
        sizes = np.unique(np.linspace(min(2, len(exit_layers) - 1), len(exit_layers) - 1, SIZES).round().astype(int))
        never = len(exit_layers)
        return [Entropy(t, normalised=True) | Window(int(size)) for size in (*sizes, never) for t in thresholds]

    @classmethod
    def from_papers(cls, task: str) -> list[Policy]:
        return [Entropy(tenths / 10, normalised=True) | Window(8) for tenths in range(9, 0, -1)]


@dataclass(frozen=True)
class Both(Combined):
    """Leave when all of the rules say so at the same exit: `Patience(2) & Confidence(0.8)` is PCEE-BERT's idea."""

    sign = "&"

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        votes, state = self.votes(layer, logits, state)
        return reduce(and_, votes), state
