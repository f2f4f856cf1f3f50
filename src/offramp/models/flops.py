"""Counting the operations of a layer with gates, by EBERT's formula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from offramp.models.gate_settings import PREDICTOR_WIDTH

Count = TypeVar("Count", int, NDArray[np.int64])
"""A whole number, or an array of them."""


@dataclass(frozen=True)
class EbertLayer:
    """One layer of EBERT, counted by its formula: products only, two operations for each multiply-add.

    `legacy` counts as the released code does whatever the model: heads 64 wide, a predictor for 12 heads, and in the
    report of a gated model the predictor of the heads once for each head.
    """

    hidden: int
    heads: int
    intermediate: int
    legacy: bool = False
    block: int = 1
    """Neurons that share a gate."""
    predictor: int = PREDICTOR_WIDTH

    def head(self, length: Count) -> Count:
        """F_h = 2·L·w·d·3 + 2·L²·w·2 + 2·L·d·w: its queries, keys and values, scores, sum, share of the projection."""
        width = 64 if self.legacy else self.hidden // self.heads
        return 8 * length * width * self.hidden + 4 * length**2 * width

    def ffn(self, length: Count) -> Count:
        """F_f(1) = 4·L·d·d_ff"""
        return 4 * length * self.hidden * self.intermediate

    def head_predictor(self) -> int:
        """g_h = 2·64·d + 2·64·heads"""
        return 2 * self.predictor * (self.hidden + (12 if self.legacy else self.heads))

    def ffn_predictor(self) -> int:
        """g_f = 2·64·d + 2·64·d_ff / block"""
        return 2 * self.predictor * (self.hidden + self.intermediate // self.block)

    def all_kept(self, length: Count) -> Count:
        """Without gates: heads · F_h + F_f(1)."""
        return self.heads * self.head(length) + self.ffn(length)

    def gated(self, length: int, heads_kept: float, neurons_kept: float) -> float:
        """heads_kept · F_h + g_h + neurons_kept/d_ff · F_f(1) + g_f, with the mean numbers of what was kept."""
        predictors = (self.heads if self.legacy else 1) * self.head_predictor() + self.ffn_predictor()
        return heads_kept * self.head(length) + neurons_kept / self.intermediate * self.ffn(length) + predictors
