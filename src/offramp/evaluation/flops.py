"""Counting operations, by the rules that published figures were counted with."""

from __future__ import annotations


def elue_macs(
    hidden: int, heads: int, intermediate: int, layers: int, length: int, classes: int, exits: int = 1
) -> int:
    """Multiply-adds of one input by the counter of the ELUE benchmark (ElasticBERT's repository).

        2Sd + k · (4Sd² + heads · (2S² + 2S²d/heads) + 2Sd·ffn + 4Sd) + exits · (d² + dC)

    with length S, width d, k layers: a norm counts 2 for each element, scale and softmax S² each for each head;
    biases, activations, residuals and embeddings count nothing.
    """
    width = hidden // heads
    attention = 4 * length * hidden**2 + heads * (2 * length**2 + 2 * length**2 * width)
    layer = attention + 2 * length * hidden * intermediate + 4 * length * hidden
    return 2 * length * hidden + layers * layer + exits * (hidden**2 + hidden * classes)


def elue_mflops(macs: float) -> float:
    """The figure ELUE prints and ranks by: two operations for each multiply-add, in millions."""
    return 2 * macs / 1e6
