"""Confidence: the largest probability."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.policies.base import choices, probabilities
from offramp.policies.threshold import Threshold


@dataclass(frozen=True)
class Confidence(Threshold):
    """Leave once the predicted label is likely enough: max_c p_c > threshold.

    For spans, once its best start and its best end are: max_t p_start(t) · max_t p_end(t) > threshold.
    """

    above = True
    tasks = frozenset({"classification", "span"})

    def signal(self, logits: Tensor) -> Tensor:
        return probabilities(choices(logits)).amax(-1).prod(-1)
