"""Confidence: the largest probability."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.policies.base import probabilities
from offramp.policies.threshold import Threshold


@dataclass(frozen=True)
class Confidence(Threshold):
    """Leave once the predicted label is likely enough: max_c p_c > threshold."""

    above = True

    def signal(self, logits: Tensor) -> Tensor:
        return probabilities(logits).amax(-1)
