"""RuledOut: what ELBERT's code calls `logits`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.policies.base import PerLayer, Policy, State, at_layer, probabilities


@dataclass(frozen=True)
class RuledOut(Policy):
    """Leave once some class is as good as impossible: min_c p_c < threshold. For two classes, confidence reversed."""

    threshold: PerLayer

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        return probabilities(logits).amin(-1) < at_layer(self.threshold, layer), None
