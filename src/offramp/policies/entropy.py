"""Entropy: DeeBERT's and ElasticBERT's rule, and the first stage of ELBERT's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.policies.base import PerLayer, Policy, State, at_layer, at_least_float32


@dataclass(frozen=True)
class Entropy(Policy):
    """Leave once the answer is certain: H(p) < threshold, in nats, or divided by ln C to lie in 0..1 (ELBERT)."""

    threshold: PerLayer
    normalised: bool = False

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        uncertainty = entropy(logits)  # (B,)
        if self.normalised:
            uncertainty = uncertainty / math.log(logits.shape[-1])
        return uncertainty < at_layer(self.threshold, layer), None


def entropy(logits: Tensor) -> Tensor:
    """H = -Σ p ln p in nats, (…, C) to (…): finite for every finite logit."""
    log_p = at_least_float32(logits).log_softmax(-1)
    # Logits further apart than the largest float give ln p = -inf where p = 0; the product is to be 0, not NaN.
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)
