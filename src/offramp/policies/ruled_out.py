"""RuledOut: what ELBERT's code calls `logits`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.policies.base import probabilities
from offramp.policies.threshold import Threshold


@dataclass(frozen=True)
class RuledOut(Threshold):
    """Leave once some class is as good as impossible: min_c p_c < threshold. For two classes, confidence reversed."""

    def signal(self, logits: Tensor) -> Tensor:
        return probabilities(logits).amin(-1)
