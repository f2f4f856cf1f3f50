"""The two blocks of a layer for a batch whose rows keep different heads and neurons.

What is kept is cut into tiles: neighbouring units that the same neighbouring rows keep. A tile is a product of a slice
of the batch by a slice of the weights, so nothing is copied. Most tiles are one unit wide; they give their results side
by side in one memory, so that the attention, or the activation, of all of them is one step.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from offramp.models.runs import Flags, Tile, tiles_of
from offramp.models.sliced_layer import SlicedLayer, as_factor, flags


class Batch:
    """The rows of a batch end to end, and the sums of what a linear layer makes of some of its inputs."""

    def __init__(self, hidden: Tensor, linear: nn.Linear) -> None:
        tokens = self.tokens = hidden.shape[1]
        flat = hidden.reshape(-1, hidden.shape[2])  # (B · T, d)
        total = linear.bias.repeat(len(flat), 1)
        self.total = total.view_as(hidden)

        @cache  # there are a few hundred tiles, on far fewer stretches of rows
        def views(first: int, last: int) -> tuple[Tensor, Tensor]:
            return flat[first * tokens : last * tokens], total[first * tokens : last * tokens]

        self.views = views

    def rows(self, tile: Tile) -> Tensor:
        """What the tile's rows are: (rows · T, d)."""
        return self.views(tile.first_row, tile.last_row)[0]

    def sums(self, tile: Tile) -> Tensor:
        """What is summed for them, to be added to in place."""
        return self.views(tile.first_row, tile.last_row)[1]


def side_by_side(batch: Batch, tiles: list[Tile], linear: nn.Linear, width: int) -> Tensor:
    """The outputs of single units, each for its tile's rows, tile after tile: (pairs of unit and row, T, width)."""
    weights = linear.weight.t().split(width, 1)
    rows = [tile.rows for tile in tiles]
    units = torch.tensor([tile.first for tile in tiles]).repeat_interleave(torch.tensor(rows))
    outputs = linear.weight.new_empty(sum(rows) * batch.tokens, width)
    pieces = outputs.split([number * batch.tokens for number in rows])
    factors = [(batch.rows(tile), weights[tile.first]) for tile in tiles]
    for out, (seen, weight) in zip(pieces, factors, strict=True):
        torch.mm(seen, weight, out=out)
    biases = linear.bias.view(-1, 1, width)[units.to(linear.bias.device)]
    return outputs.view(-1, batch.tokens, width).add_(biases)


def add_products(batch: Batch, tiles: list[Tile], inputs: Tensor, linear: nn.Linear, width: int) -> None:
    """Add what a linear layer makes of the single units in `inputs`, which lie as `side_by_side` left them."""
    weights = linear.weight.t().split(width)
    pieces = inputs.view(-1, width).split([tile.rows * batch.tokens for tile in tiles])
    factors = [(batch.sums(tile), weights[tile.first]) for tile in tiles]
    for piece, (sums, weight) in zip(pieces, factors, strict=True):
        sums.addmm_(piece, weight)


def batch_attention(layer: SlicedLayer, hidden: Tensor, gates: Tensor, mask: Tensor | None) -> Tensor:
    """`SlicedLayer.attention` for any number of rows, each with its own `gates` (B, heads)."""
    parts, width, batch, kept = layer.parts, layer.parts.head_width, Batch(hidden, layer.parts.attended), flags(gates)
    tiles = tiles_of(kept, layer.head_cost, batch.tokens)
    for tile in tiles:
        if tile.units > 1:
            add_heads(layer, batch, tile, kept, mask)
    singles = [tile for tile in tiles if tile.units == 1]
    if singles:
        query, key, value = (
            side_by_side(batch, singles, linear, width).unsqueeze(1)  # (pairs, 1, T, width)
            for linear in (parts.query, parts.key, parts.value)
        )
        shown = None if mask is None else torch.cat([mask[tile.first_row : tile.last_row] for tile in singles])
        gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=shown)
        inside = np.concatenate([tile.of(kept) for tile in singles])
        if not inside.all():
            gathered = gathered * as_factor(inside, gathered)[:, :, None, None]
        add_products(batch, singles, gathered, parts.attended, width)
    return batch.total


def add_heads(layer: SlicedLayer, batch: Batch, tile: Tile, kept: Flags, mask: Tensor | None) -> None:
    """Add neighbouring heads for neighbouring rows."""
    parts, width, rows = layer.parts, layer.parts.head_width, batch.rows(tile)
    place = tile.place(width)
    query, key, value = (
        F.linear(rows, one.weight[place], one.bias[place]).view(-1, batch.tokens, tile.units, width).transpose(1, 2)
        for one in (parts.query, parts.key, parts.value)
    )
    shown = None if mask is None else mask[tile.first_row : tile.last_row]
    gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=shown).transpose(1, 2)
    inside = tile.of(kept)
    if not inside.all():
        gathered = gathered * as_factor(np.ascontiguousarray(inside), rows)[:, None, :, None]
    batch.sums(tile).addmm_(gathered.reshape(len(rows), -1), parts.attended.weight.t()[place])


def batch_feed_forward(layer: SlicedLayer, hidden: Tensor, gates: Tensor) -> Tensor:
    """`SlicedLayer.feed_forward` for any number of rows, each with its own `gates` (B, neurons / block)."""
    parts, batch = layer.parts, Batch(hidden, layer.parts.summed)
    kept = layer.units(gates)  # (B, units, gates in a unit)
    width = parts.neurons.out_features // max(1, kept.shape[1])
    tiles = tiles_of(np.asarray(kept.any(2)), 2 * width * hidden.shape[2], batch.tokens)
    for tile in tiles:
        if tile.units > 1:
            add_neurons(layer, batch, tile, kept, width)
    singles = [tile for tile in tiles if tile.units == 1]
    if singles:
        active: Tensor = parts.activation(side_by_side(batch, singles, parts.neurons, width))
        inside = np.concatenate([tile.of(kept) for tile in singles])  # (pairs, 1, gates in a unit)
        if not inside.all():
            factor = as_factor(inside, active).repeat_interleave(width // kept.shape[2], 2)
            active = active * factor
        add_products(batch, singles, active, parts.summed, width)
    return batch.total


def add_neurons(layer: SlicedLayer, batch: Batch, tile: Tile, kept: Flags, width: int) -> None:
    """Add neighbouring units of neurons for neighbouring rows."""
    parts, place, rows = layer.parts, tile.place(width), batch.rows(tile)
    active: Tensor = parts.activation(F.linear(rows, parts.neurons.weight[place], parts.neurons.bias[place]))
    inside = tile.of(kept)
    if not inside.all():
        factor = as_factor(np.ascontiguousarray(inside), rows).flatten(1)
        factor = factor.repeat_interleave(width // kept.shape[2], 1).unsqueeze(1)
        active = (active.view(tile.rows, batch.tokens, -1) * factor).flatten(0, 1)
    batch.sums(tile).addmm_(active, parts.summed.weight.t()[place])
