"""The two blocks of a layer for one input, computed by slices of their weights.

A slice of a weight matrix is multiplied as a batch of small products (one for each unit, or for each stretch of the
outputs): with the few tokens of one input that is faster on CPUs than one wide product, and results of different
slices come to lie together. The weights are the model's own, not copies; only `attended` and `summed` are laid out by
input, so that what belongs to a unit is contiguous.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from offramp.backbones.parts import LayerParts
from offramp.models.runs import Flags, Run, runs, widest_gap

CHUNK = 32
"""Neurons in one product, at most."""
STRETCH = 96
"""Outputs in one product, at most."""
NARROW = 16
"""Products narrower than this do not pay."""


class SlicedLayer:
    """A layer that computes some of its heads and neurons. B is 1 here."""

    def __init__(self, parts: LayerParts, block: int) -> None:
        self.parts = parts
        self.chunk = chunk_width(parts.neurons.out_features, block)
        self.blocks_in_chunk = max(1, self.chunk // block)
        self.chunks_in_block = max(1, block // self.chunk)
        size = parts.attended.out_features
        self.head_cost = 4 * parts.head_width * size
        self.chunk_cost = 2 * self.chunk * size
        lay_out_by_input(parts.attended)
        lay_out_by_input(parts.summed)

    def units(self, gates: Tensor) -> Flags:
        """Neuron gates (B, neurons / block) as (B, units, 1), or where a chunk has more blocks (B, chunks, blocks)."""
        kept = flags(gates)
        return kept.reshape(len(kept), -1, self.blocks_in_chunk)

    def attention(self, hidden: Tensor, gates: Tensor, mask: Tensor | None) -> Tensor:
        """What the heads that `gates` (1, heads) keeps gather and `attended` makes of it: (1, T, d) to (1, T, d)."""
        kept = flags(gates)
        found = runs(kept[0].tolist(), widest_gap(self.head_cost, hidden.shape[1]))
        if not found:
            return self.parts.attended.bias.expand_as(hidden)
        query, key, value = (
            unit_products(hidden, linear, found, self.parts.head_width).unsqueeze(0)  # (1, heads, T, width)
            for linear in (self.parts.query, self.parts.key, self.parts.value)
        )
        gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        inside = within(kept, found)
        if not inside.all():
            gathered = gathered * as_factor(inside, hidden)[:, :, None, None]
        return sum_of_units(gathered[0], self.parts.attended, found)

    def feed_forward(self, hidden: Tensor, gates: Tensor) -> Tensor:
        """What `summed` makes of the neurons that `gates` (1, neurons / block) keeps: (1, T, d) to (1, T, d)."""
        kept = np.repeat(self.units(gates), self.chunks_in_block, 1)  # (1, chunks, blocks in a chunk)
        found = runs(kept[0].any(1).tolist(), widest_gap(self.chunk_cost, hidden.shape[1]))
        if not found:
            return self.parts.summed.bias.expand_as(hidden)
        active = self.parts.activation(unit_products(hidden, self.parts.neurons, found, self.chunk))
        inside = within(kept, found)
        if not inside.all():
            factor = as_factor(inside[0], hidden).repeat_interleave(self.chunk // self.blocks_in_chunk, 1)
            active = active * factor.unsqueeze(1)  # (chunks, T, chunk) by (chunks, 1, chunk)
        return sum_of_units(active, self.parts.summed, found)


def unit_products(hidden: Tensor, linear: nn.Linear, found: list[Run], width: int) -> Tensor:
    """The outputs of the units, each `width` wide: (1, T, d) to (units, T, width)."""
    weights = linear.weight.unflatten(0, (-1, width)).transpose(1, 2)  # (units, d, width)
    bias = linear.bias.view(-1, 1, width)
    out = hidden.new_empty(sum(last - first for first, last in found), hidden.shape[1], width)
    at = 0
    for first, last in found:
        to = at + last - first
        torch.baddbmm(bias[first:last], hidden.expand(last - first, -1, -1), weights[first:last], out=out[at:to])
        at = to
    return out


def sum_of_units(units: Tensor, linear: nn.Linear, found: list[Run]) -> Tensor:
    """What a linear layer makes of some of its inputs: (units, T, width) to (1, T, d)."""
    _, tokens, width = units.shape
    stretch = divisor(linear.out_features, STRETCH)
    weights = linear.weight.t().unflatten(1, (-1, stretch)).transpose(0, 1)  # (stretches, inputs, stretch)
    inputs = units.transpose(0, 1).flatten(1).expand(len(weights), -1, -1)
    total = linear.bias.view(-1, 1, stretch).repeat(1, tokens, 1)  # (stretches, T, stretch), a copy also of one token
    at = 0
    for first, last in found:
        to = at + (last - first) * width
        total.baddbmm_(inputs[:, :, at:to], weights[:, first * width : last * width])
        at = to
    return total.transpose(0, 1).flatten(1).unsqueeze(0)


def lay_out_by_input(linear: nn.Linear) -> None:
    """Store a weight matrix input by input; it stays the same matrix, under the same name."""
    with torch.inference_mode(False):  # or the weights could never be trained again
        linear.weight.data = linear.weight.data.t().contiguous().t()


def chunk_width(neurons: int, block: int) -> int:
    """How many neurons one product takes: whole blocks of them, or a whole part of a block."""
    fits = [
        width
        for width in range(1, min(neurons, CHUNK) + 1)
        if neurons % width == 0 and (width % block == 0 or block % width == 0)
    ]
    return fits[-1] if fits and fits[-1] >= min(NARROW, max(block, 2)) else max(neurons, 1)


def divisor(size: int, most: int) -> int:
    """The largest divisor up to `most`, or the size itself where that is narrow."""
    largest = next(width for width in range(min(size, most), 0, -1) if size % width == 0)
    return largest if largest >= NARROW else size


def within(kept: Flags, found: list[Run]) -> Flags:
    """What is kept of the units that are computed."""
    return np.concatenate([kept[:, first:last] for first, last in found], 1)


def flags(gates: Tensor) -> Flags:
    return np.asarray((gates > 0).cpu().numpy())


def as_factor(keeps: Flags, like: Tensor) -> Tensor:
    return torch.from_numpy(keeps).to(like)
