"""The two blocks of a layer for a batch whose rows keep different heads and neurons.

What most rows keep is computed for all in one product and masked; what few rows keep, for those rows: they are picked
out of the batch, and what comes of them is added back.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from offramp.models.runs import Part, parts_of
from offramp.models.sliced_layer import SlicedLayer, as_factor, flags


class Picking:
    """Rows of a batch, picked and added back through memory that is taken once."""

    def __init__(self, hidden: Tensor, linear: nn.Linear) -> None:
        self.batch, self.tokens, self.size = hidden.shape
        self.flat = hidden.reshape(self.batch, -1)
        self.picked = torch.empty_like(self.flat)
        self.total = linear.bias.repeat(self.batch, self.tokens)  # (B, T · d)
        self.weights = linear.weight.t()  # (inputs, d)

    def pick(self, rows: Tensor | None) -> Tensor:
        """(rows · T, d)"""
        if rows is None:
            return self.flat.view(-1, self.size)
        return torch.index_select(self.flat, 0, rows, out=self.picked[: len(rows)]).view(-1, self.size)

    def add(self, rows: Tensor | None, inputs: Tensor, place: slice) -> None:
        """Add what the linear layer makes of some of its inputs, (rows · T, n), to the rows' totals."""
        if rows is None:
            self.total.view(-1, self.size).addmm_(inputs, self.weights[place])
            return
        # adding a product to sums that were picked takes less time than adding it to the rows afterwards
        sums = torch.index_select(self.total, 0, rows, out=self.picked[: len(rows)])
        sums.view(-1, self.size).addmm_(inputs, self.weights[place])
        self.total.index_copy_(0, rows, sums)

    def result(self) -> Tensor:
        return self.total.view(self.batch, self.tokens, self.size)


def batch_attention(layer: SlicedLayer, hidden: Tensor, gates: Tensor, mask: Tensor | None) -> Tensor:
    """`SlicedLayer.attention` for any number of rows, each with its own `gates` (B, heads)."""
    parts, width, tokens = layer.parts, layer.parts.head_width, hidden.shape[1]
    kept = flags(gates)
    found = parts_of(kept, layer.head_cost, tokens)
    picking = Picking(hidden, parts.attended)
    three = (parts.query, parts.key, parts.value)
    for part in found:
        if part.rows is None:
            place = slice(part.first * width, part.last * width)
            query, key, value = (
                F.linear(hidden, one.weight[place], one.bias[place]).unflatten(-1, (-1, width)).transpose(1, 2)
                for one in three
            )
            gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=mask).transpose(1, 2)
            inside = kept[:, part.first : part.last]
            if not inside.all():
                gathered = gathered * as_factor(inside, hidden)[:, None, :, None]
            picking.add(None, gathered.reshape(len(hidden) * tokens, -1), place)
    few = [(head, part.rows) for part in found if part.rows is not None for head in range(part.first, part.last)]
    if few:
        add_picked_heads(picking, few, three, width, mask)
    return picking.result()


def add_picked_heads(
    picking: Picking, few: list[tuple[int, list[int]]], three: tuple[nn.Linear, ...], width: int, mask: Tensor | None
) -> None:
    """Add heads with the rows that keep them; the attention of all such pairs is one step."""
    every = torch.tensor([row for _, rows in few for row in rows], device=picking.flat.device)
    rows_of = every.split([len(rows) for _, rows in few])
    pieces = [len(rows) * picking.tokens for _, rows in few]
    seen = [picking.flat.new_empty(sum(pieces), width) for _ in three]
    split = [one.split(pieces) for one in seen]
    places = [slice(head * width, (head + 1) * width) for head, _ in few]
    for number, (place, rows) in enumerate(zip(places, rows_of, strict=True)):
        picked = picking.pick(rows)
        for linear, out in zip(three, split, strict=True):
            torch.addmm(linear.bias[place], picked, linear.weight[place].t(), out=out[number])
    query, key, value = (one.view(-1, 1, picking.tokens, width) for one in seen)  # (pairs, 1, T, width)
    shown = None if mask is None else mask[every]
    gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=shown).transpose(1, 2).reshape(-1, width)
    for place, rows, inputs in zip(places, rows_of, gathered.split(pieces), strict=True):
        picking.add(rows, inputs, place)


def batch_feed_forward(layer: SlicedLayer, hidden: Tensor, gates: Tensor) -> Tensor:
    """`SlicedLayer.feed_forward` for any number of rows, each with its own `gates` (B, neurons / block)."""
    neurons, tokens = layer.parts.neurons, hidden.shape[1]
    kept = layer.units(gates)
    width = neurons.out_features // max(1, kept.shape[1])
    found = parts_of(np.asarray(kept.any(2)), 2 * width * hidden.shape[2], tokens)
    picking = Picking(hidden, layer.parts.summed)
    rows_of = [places(part, hidden) for part in found]
    shapes = [(len(part.rows or kept) * tokens, (part.last - part.first) * width) for part in found]
    pieces = [rows * many for rows, many in shapes]
    memory = hidden.new_empty(sum(pieces))  # one for all parts, so that the activation is one step
    for part, rows, out, shape in zip(found, rows_of, memory.split(pieces), shapes, strict=True):
        place = slice(part.first * width, part.last * width)
        torch.addmm(neurons.bias[place], picking.pick(rows), neurons.weight[place].t(), out=out.view(shape))
    active: Tensor = layer.parts.activation(memory)
    for part, rows, piece, shape in zip(found, rows_of, active.split(pieces), shapes, strict=True):
        inside = kept[slice(None) if part.rows is None else part.rows, part.first : part.last]
        if not inside.all():
            factor = as_factor(np.ascontiguousarray(inside), hidden).flatten(1)
            piece.view(-1, tokens, shape[1]).mul_(factor.repeat_interleave(width // kept.shape[2], 1).unsqueeze(1))
        picking.add(rows, piece.view(shape), slice(part.first * width, part.last * width))
    return picking.result()


def places(part: Part, like: Tensor) -> Tensor | None:
    return None if part.rows is None else torch.tensor(part.rows, device=like.device)
