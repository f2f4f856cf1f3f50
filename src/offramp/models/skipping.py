"""Gated layers that compute only what is kept: for each input its own heads and neurons, as slices of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models.batch_layer import batch_attention, batch_feed_forward
from offramp.models.gated_layer import key_mask
from offramp.models.gates import Kept
from offramp.models.pooling import first_real_token
from offramp.models.sliced_layer import SlicedLayer

if TYPE_CHECKING:
    from offramp.models.modeling import MultiExitPreTrainedModel


class Skipping:
    """Runs gated layers by what is kept only: `model.skipping = Skipping(model)`.

    What it gives equals `gated_layer` in evaluation, without gradients. It shares the model's weights: they may be
    trained, moved or cast on; a model that is folded needs a new one.
    """

    def __init__(self, model: MultiExitPreTrainedModel) -> None:
        if model.gates is None:
            raise OfframpError("this model has no gates, so there is nothing to skip: train one with --recipe ebert")
        self.gates = model.gates
        self.layers: list[SlicedLayer] = []
        shared: dict[int, SlicedLayer] = {}
        for index in range(model.backbone.depth):
            parts = model.backbone.parts(index)
            if id(parts.neurons) not in shared:
                shared[id(parts.neurons)] = SlicedLayer(parts, model.gates.block)
            self.layers.append(shared[id(parts.neurons)])

    @torch.no_grad()
    def layer(self, index: int, hidden: Tensor, mask: Tensor | None, attention_mask: Tensor) -> tuple[Tensor, Kept]:
        """Run layer `index` (0-based), (B, T, d) to (B, T, d); and say what was kept for each row."""
        gates, sliced = self.gates.layer(index), self.layers[index]
        heads = gates.heads(self.gates.head_input(index, hidden, attention_mask))
        alone, seen = len(hidden) == 1, key_mask(mask, attention_mask)
        gathered = sliced.attention(hidden, heads, seen) if alone else batch_attention(sliced, hidden, heads, seen)
        hidden = sliced.parts.after_attention(hidden, gathered, training=False)
        neurons = gates.neurons(first_real_token(hidden, attention_mask))
        summed = sliced.feed_forward(hidden, neurons) if alone else batch_feed_forward(sliced, hidden, neurons)
        return sliced.parts.after_neurons(hidden, summed, training=False), Kept(heads, neurons)
