"""Constant gates become part of the weights: what is always off is deleted, what is always on is no longer predicted.

What is left is reordered, so that units kept together lie together: a layer that skips takes them as one slice.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbones import Backbone
from offramp.backbones.parts import LayerParts
from offramp.errors import OfframpError
from offramp.models.gate_order import KeepStatistics, Places, neighbours
from offramp.models.gate_settings import FoldedLayer, GateSettings
from offramp.models.gates import ALWAYS_OFF, ALWAYS_ON, PREDICTED, Gates, UnitGates
from offramp.models.runs import Flags
from offramp.models.sliced_layer import CHUNK

if TYPE_CHECKING:
    from offramp.models.modeling import MultiExitPreTrainedModel


def shrink(backbone: Backbone, settings: GateSettings) -> None:
    """Give the layers of a fresh backbone the sizes that folding left them."""
    for index, left in enumerate(settings.folded or ()):
        shrink_layer(backbone, index, left)


def shrink_layer(backbone: Backbone, index: int, left: FoldedLayer) -> None:
    parts = backbone.parts(index)
    width = left.heads * parts.head_width
    for linear in (parts.query, parts.key, parts.value):
        resize(linear, rows=width)
    resize(parts.attended, columns=width)
    resize(parts.neurons, rows=left.neurons)
    resize(parts.summed, columns=left.neurons)


def resize(linear: nn.Linear, rows: int | None = None, columns: int | None = None) -> None:
    """Change a linear layer's outputs or inputs, in place; what its weights are is left to whoever loads them."""
    rows = linear.out_features if rows is None else rows
    columns = linear.in_features if columns is None else columns
    linear.out_features, linear.in_features = rows, columns
    linear.weight = nn.Parameter(linear.weight.new_empty(rows, columns))
    linear.bias = nn.Parameter(linear.bias.new_empty(rows))


@torch.inference_mode(False)
def fold(model: MultiExitPreTrainedModel, statistics: KeepStatistics, constant: float = 0.0) -> tuple[FoldedLayer, ...]:
    """Fold the constant gates of a model into its weights, in place, and reorder the units; says what is left.

    On rows whose gates were kept and skipped as on the calibration data the answers stay the same.

    Args:
        statistics: from `keep_statistics`.
        constant: a gate that is kept on no more than this share of the rows counts as always off, one that is skipped
            on no more than this as always on. 0 takes only what never varied.
    """
    gates = gates_to_fold(model, statistics, constant)
    depth = model.backbone.depth
    sharing: dict[int, list[int]] = defaultdict(list)  # layers with the same weights
    for index in range(depth):
        sharing[id(model.backbone.parts(index).neurons)].append(index)
    for layers in sharing.values():
        parts = model.backbone.parts(layers[0])
        heads = left_in_order([statistics.heads[index] for index in layers], constant, 1)
        blocks = left_in_order([statistics.neurons[index] for index in layers], constant, gates.block)
        keep_heads(parts, heads)
        keep_neurons(parts, blocks, gates.block)
        for index in layers:
            keep_gates(gates.layer(index).heads, statistics.heads[index], heads, constant)
            keep_gates(gates.layer(index).neurons, statistics.neurons[index], blocks, constant)
    folded = tuple(what_is_left(gates, index) for index in range(depth))
    gates.settings = dataclasses.replace(gates.settings, folded=folded)
    model.config.gates = gates.settings.to_json()
    model.skipping = None if model.skipping is None else type(model.skipping)(model)
    return folded


def gates_to_fold(model: MultiExitPreTrainedModel, statistics: KeepStatistics, constant: float) -> Gates:
    """The model's gates, if they can be folded by these statistics."""
    if model.gates is None:
        raise OfframpError("this model has no gates to fold: train one with --recipe ebert")
    settings = model.gates.settings
    if "topk" in (settings.heads, settings.neurons):
        raise OfframpError("gates of the mode topk cannot be folded: which one is kept depends on all others")
    if not 0 <= constant < 0.5:
        raise OfframpError(f"constant is a share of the rows, 0 to less than 0.5, not {constant}")
    for index in range(model.backbone.depth):
        layer = model.gates.layer(index)
        counted = (statistics.heads[index].shape[1], statistics.neurons[index].shape[1])
        if counted != (len(layer.heads.state), len(layer.neurons.state)):
            raise OfframpError("these keep statistics are of another model: count them again with keep_statistics")
    return model.gates


def left_in_order(layers: list[Flags], constant: float, block: int) -> Places:
    """The units that some of the layers with the same weights keep, in the order to store them."""
    rates = [kept.mean(0) for kept in layers]
    off = np.all([rate <= constant for rate in rates], 0)
    settled = [
        np.where(rate <= constant, False, kept | (rate >= 1 - constant))
        for rate, kept in zip(rates, layers, strict=True)
    ]
    order = neighbours(np.concatenate(settled))
    order = np.concatenate([order[~off[order]], order[off[order]]])
    left = int((~off).sum())
    if block == 1 and left >= 4 * CHUNK:  # whole chunks, or no slice of them is a product
        left = min(-(-left // CHUNK) * CHUNK, len(order))
    return order[:left]


def keep_heads(parts: LayerParts, heads: Places) -> None:
    inside = positions(heads, parts.head_width)
    for linear in (parts.query, parts.key, parts.value):
        keep_rows(linear, inside)
    keep_columns(parts.attended, inside)


def keep_neurons(parts: LayerParts, blocks: Places, block: int) -> None:
    inside = positions(blocks, block)
    keep_rows(parts.neurons, inside)
    keep_columns(parts.summed, inside)


def positions(units: Places, width: int) -> Tensor:
    """Where the rows of units of so many rows each are."""
    return torch.from_numpy((units[:, None] * width + np.arange(width)).reshape(-1))


def keep_rows(linear: nn.Linear, rows: Tensor) -> None:
    rows = rows.to(linear.weight.device)
    linear.weight = nn.Parameter(linear.weight.detach()[rows], linear.weight.requires_grad)
    linear.bias = nn.Parameter(linear.bias.detach()[rows], linear.bias.requires_grad)
    linear.out_features = len(rows)


def keep_columns(linear: nn.Linear, columns: Tensor) -> None:
    columns = columns.to(linear.weight.device)
    linear.weight = nn.Parameter(linear.weight.detach()[:, columns].contiguous(), linear.weight.requires_grad)
    linear.in_features = len(columns)


def keep_gates(gates: UnitGates, kept: Flags, units: Places, constant: float) -> None:
    """Bring the gates of a layer into the order of its units; those that are constant are no longer predicted."""
    rate = kept.mean(0)[units]
    state = np.where(rate <= constant, ALWAYS_OFF, np.where(rate >= 1 - constant, ALWAYS_ON, PREDICTED))
    before = gates.state.cpu().numpy()
    output_of = np.cumsum(before == PREDICTED) - 1  # which output of the predictor is a unit's
    gates.state = torch.from_numpy(state.astype(np.int8)).to(gates.state.device)
    still = torch.from_numpy(output_of[units[state == PREDICTED]])
    if gates.predictor is None:
        return
    if not len(still):
        gates.predictor = None
        return
    last = gates.predictor[3]
    assert isinstance(last, nn.Linear)
    keep_rows(last, still)


def what_is_left(gates: Gates, index: int) -> FoldedLayer:
    layer = gates.layer(index)
    heads, neurons = layer.heads.state, layer.neurons.state
    return FoldedLayer(
        heads=len(heads),
        neurons=len(neurons) * gates.block,
        predicted_heads=int((heads == PREDICTED).sum()),
        predicted_neurons=int((neurons == PREDICTED).sum()),
    )
