"""Counting operations, by the rules that published figures were counted with: the ELUE benchmark's and EBERT's.

Both work on one length or an array of lengths. torch's own counter (`FlopCounterMode`) sees products of matrices only:
twice ELUE's multiply-adds without norms, scale and softmax; EBERT's figure plus the exits and ALBERT's embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.models import MultiExitModel
from offramp.models.flops import Count, EbertLayer


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
    classifier: int | None = None
    """Width of the hidden layer in the exits' classifiers; None where they have none."""

    @staticmethod
    def of(model: MultiExitModel) -> ModelShape:
        """The shape of a model."""
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
            classifier=model.config.classifier_size,
        )

    def elue_macs(self, length: Count, layers: int | None = None, exits: int = 1) -> Count:
        """Multiply-adds of inputs of so many tokens up to a layer, with so many exits asked on the way."""
        layers = self.depth if layers is None else layers
        trunk = elue_macs(
            self.hidden, self.heads, self.intermediate, layers, length, self.classes, exits=0, embedding=self.embedding
        )
        pooler = 0 if self.pooler is None else self.hidden * self.pooler
        width, between = self.pooler or self.hidden, self.classifier
        head = width * self.classes if between is None else width * between + between * self.classes
        return trunk + exits * (pooler + head)

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
class GateCounts:
    """What the gates of n layers kept for each of N inputs, and what predicting them cost."""

    heads: NDArray[np.int64]
    """(n, N)"""
    neurons: NDArray[np.int64]
    """(n, N)"""
    predictors: NDArray[np.float64]
    """(n,) operations, two for each multiply-add."""


def elue_macs_to(
    shape: ModelShape, lengths: NDArray[np.int64], layer: int, exits: int = 1, gates: GateCounts | None = None
) -> NDArray[np.float64]:
    """Multiply-adds of each input up to a layer, with so many exits asked on the way: (N,).

    With gates, a head counts its share of attention and a neuron its share of the feed-forward block; norms count
    whole, and each layer's predictors are added.
    """
    if gates is None:
        return np.asarray(shape.elue_macs(lengths, layer, exits), dtype=np.float64)
    rest = shape.elue_macs(lengths, 0, exits) + layer * 4 * lengths * shape.hidden
    width = shape.hidden // shape.heads
    head = 4 * lengths * shape.hidden * width + 2 * lengths**2 + 2 * lengths**2 * width
    kept = gates.heads[:layer].sum(0) * head + gates.neurons[:layer].sum(0) * 2 * lengths * shape.hidden
    return np.asarray(rest + kept + gates.predictors[:layer].sum() / 2, dtype=np.float64)


def ebert_flops_to(
    shape: ModelShape, lengths: NDArray[np.int64], layer: int, gates: GateCounts | None = None
) -> NDArray[np.float64]:
    """Operations of each input up to a layer by EBERT's formula: (N,)."""
    if gates is None:
        return np.asarray(shape.ebert_flops(lengths, layer), dtype=np.float64)
    one = EbertLayer(shape.hidden, shape.heads, shape.intermediate)
    neurons = gates.neurons[:layer].sum(0) / shape.intermediate
    kept = gates.heads[:layer].sum(0) * one.head(lengths) + neurons * one.ffn(lengths)
    return np.asarray(kept + gates.predictors[:layer].sum(), dtype=np.float64)


def share_kept(shape: ModelShape, lengths: NDArray[np.int64], gates: GateCounts) -> float:
    """What gates and their predictors take at full depth, over all inputs, of what every head and neuron would."""
    kept, every = ebert_flops_to(shape, lengths, shape.depth, gates), ebert_flops_to(shape, lengths, shape.depth)
    return float(kept.sum() / every.sum())
