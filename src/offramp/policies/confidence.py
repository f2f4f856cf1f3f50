"""Confidence: the largest probability."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.policies.base import PerLayer, Policy, State, at_layer, probabilities


@dataclass(frozen=True)
class Confidence(Policy):
    """Leave once the predicted label is likely enough: max_c p_c > threshold."""

    threshold: PerLayer

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        return probabilities(logits).amax(-1) > at_layer(self.threshold, layer), None
