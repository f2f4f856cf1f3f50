"""Entropy: DeeBERT's and ElasticBERT's rule, and the first stage of ELBERT's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.policies.base import Policy, at_least_float32, choices
from offramp.policies.threshold import Threshold

DEEBERT = (0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""The thresholds of DeeBERT's scripts; ElasticBERT's 0.3, 0.4 and 0.5 are among them."""


@dataclass(frozen=True)
class Entropy(Threshold):
    """Leave once the answer is certain: H(p) < threshold, in nats, or divided by ln C to lie in 0..1 (ELBERT).

    For spans H is the mean of the entropies of start and end, and C the number of tokens.
    """

    tasks = frozenset({"classification", "span"})

    normalised: bool = False

    def signal(self, logits: Tensor) -> Tensor:
        of_row = entropy(choices(logits)).mean(-1)
        return of_row / largest_entropy(logits) if self.normalised else of_row

    @classmethod
    def from_papers(cls, task: str) -> list[Policy]:
        return [cls(threshold) for threshold in DEEBERT] if task == "classification" else []


def entropy(logits: Tensor) -> Tensor:
    """H = -Σ p ln p in nats, (…, C) to (…): finite for every finite logit."""
    log_p = at_least_float32(logits).log_softmax(-1)
    # Logits further apart than the largest float give ln p = -inf where p = 0; the product is to be 0, not NaN.
    return -(log_p.exp() * log_p.clamp(min=torch.finfo(log_p.dtype).min)).sum(-1)


def largest_entropy(logits: Tensor) -> Tensor | float:
    """ln of how many answers there are: the labels or, for spans, the tokens that are no padding (B,)."""
    if logits.ndim == 2:
        return math.log(logits.shape[-1])
    tokens = (logits > torch.finfo(logits.dtype).min).any(-1).sum(-1)
    return tokens.clamp(min=2).to(at_least_float32(logits).dtype).log()  # of one token alone the entropy is 0 anyway
