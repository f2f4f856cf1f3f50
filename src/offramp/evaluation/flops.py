"""Counting operations, by the rules that published figures were counted with: the ELUE benchmark's and EBERT's.

Both work on one length or an array of lengths. torch's own counter (`FlopCounterMode`) sees products of matrices only:
twice ELUE's multiply-adds without norms, scale and softmax; EBERT's figure plus the exits and ALBERT's embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from offramp.models import MultiExitModel

Count = TypeVar("Count", int, NDArray[np.int64])
"""A whole number, or an array of them."""

PREDICTOR = 64
"""Width of EBERT's gate predictors."""


@dataclass(frozen=True)
class ModelShape:
    """What the cost of a model depends on."""

    family: str
    depth: int
    hidden: int
    heads: int
    intermediate: int
    classes: int
    embedding: int | None = None
    """Width of the embeddings where another product brings them to `hidden` (ALBERT)."""
    pooler: int | None = None
    """Width of the exits' poolers; None where they have none."""

    @staticmethod
    def of(model: MultiExitModel) -> ModelShape:
        config = model.config.backbone_config
        return ModelShape(
            family=config.model_type,
            depth=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            intermediate=config.intermediate_size,
            classes=model.outputs,
            embedding=config.embedding_size if config.model_type == "albert" else None,
            pooler=model.config.pooler_size if model.config.poolers else None,
        )

    def elue_macs(self, length: Count, layers: int | None = None, exits: int = 1) -> Count:
        """Multiply-adds of inputs of so many tokens up to a layer, with so many exits asked on the way."""
        layers = self.depth if layers is None else layers
        trunk = elue_macs(
            self.hidden, self.heads, self.intermediate, layers, length, self.classes, exits=0, embedding=self.embedding
        )
        pooler = 0 if self.pooler is None else self.hidden * self.pooler
        return trunk + exits * (pooler + (self.pooler or self.hidden) * self.classes)

    def ebert_flops(self, length: Count, layers: int | None = None) -> Count:
        """Operations by EBERT's formula with every head and neuron: layers · (heads · F_h + F_f)."""
        layers = self.depth if layers is None else layers
        return layers * EbertLayer(self.hidden, self.heads, self.intermediate).all_kept(length)


def elue_macs(
    hidden: int,
    heads: int,
    intermediate: int,
    layers: int,
    length: Count,
    classes: int,
    exits: int = 1,
    embedding: int | None = None,
) -> Count:
    """Multiply-adds of one input by the counter of the ELUE benchmark (ElasticBERT's repository).

        2Sd + k · (4Sd² + heads · (2S² + 2S²d/heads) + 2Sd·ffn + 4Sd) + exits · (d² + dC)

    with length S, width d, k layers; ALBERT's embeddings of width e count 2Se + Sed instead of 2Sd. A norm counts 2
    for each element, scale and softmax S² each for each head. Biases, activations, residuals and embeddings count 0.
    """
    width = hidden // heads
    attention = 4 * length * hidden**2 + heads * (2 * length**2 + 2 * length**2 * width)
    layer = attention + 2 * length * hidden * intermediate + 4 * length * hidden
    first = 2 * length * hidden if embedding is None else 2 * length * embedding + length * embedding * hidden
    return first + layers * layer + exits * (hidden**2 + hidden * classes)


def elue_mflops(macs: Any) -> Any:
    """The figure ELUE prints and ranks by: two operations for each multiply-add, in millions."""
    return 2 * macs / 1e6


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

    def head(self, length: Count) -> Count:
        """F_h = 2·L·w·d·3 + 2·L²·w·2 + 2·L·d·w: its queries, keys and values, scores, sum, share of the projection."""
        width = 64 if self.legacy else self.hidden // self.heads
        return 8 * length * width * self.hidden + 4 * length**2 * width

    def ffn(self, length: Count) -> Count:
        """F_f(1) = 4·L·d·d_ff"""
        return 4 * length * self.hidden * self.intermediate

    def head_predictor(self) -> int:
        """g_h = 2·64·d + 2·64·heads"""
        return 2 * PREDICTOR * self.hidden + 2 * PREDICTOR * (12 if self.legacy else self.heads)

    def ffn_predictor(self) -> int:
        """g_f = 2·64·d + 2·64·d_ff"""
        return 2 * PREDICTOR * (self.hidden + self.intermediate)

    def all_kept(self, length: Count) -> Count:
        """Without gates: heads · F_h + F_f(1)."""
        return self.heads * self.head(length) + self.ffn(length)

    def gated(self, length: int, heads_kept: float, neurons_kept: float) -> float:
        """heads_kept · F_h + g_h + neurons_kept/d_ff · F_f(1) + g_f, with the mean numbers of what was kept."""
        predictors = (self.heads if self.legacy else 1) * self.head_predictor() + self.ffn_predictor()
        return heads_kept * self.head(length) + neurons_kept / self.intermediate * self.ffn(length) + predictors


def elue_table(shape: ModelShape, exit_layers: tuple[int, ...], lengths: NDArray[np.int64]) -> NDArray[np.float64]:
    """ELUE's millions of operations of each sample by the exit it leaves by, every visited exit included: (E, N)."""
    each = [shape.elue_macs(lengths, layer, exits) for exits, layer in enumerate(exit_layers, start=1)]
    return np.asarray(elue_mflops(np.stack(each)))
