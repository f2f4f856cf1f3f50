"""A layer under its gates, by masks: everything is computed, and what a gate switches off is multiplied by 0.

This is how gates are trained, and what a layer that skips must equal.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from offramp.backbones.parts import LayerParts
from offramp.models.gates import Gates, Kept
from offramp.models.pooling import first_real_token


def key_mask(mask: Tensor | None, attention_mask: Tensor) -> Tensor | None:
    """Which keys may be attended to, (B, 1, 1, T); None where the backbone's own mask says that nothing is padded."""
    return None if mask is None else (attention_mask != 0)[:, None, None, :]


def gated_layer(
    parts: LayerParts,
    gates: Gates,
    index: int,
    hidden: Tensor,
    mask: Tensor | None,
    attention_mask: Tensor,
    training: bool = False,
) -> tuple[Tensor, Kept]:
    """Run layer `index` (0-based), (B, T, d) to (B, T, d); and say what was kept for each row.

    What a head gathers is multiplied by the head's gate (the same as multiplying its attention probabilities), a
    neuron's input by the neuron's, before the activation.
    """
    layer = gates.layer(index)
    heads = layer.heads(gates.head_input(index, hidden, attention_mask))  # (B, heads)
    gathered = attend(parts, hidden, key_mask(mask, attention_mask), training)
    gathered = gathered * heads.repeat_interleave(parts.head_width, 1).unsqueeze(1)
    hidden = parts.after_attention(hidden, parts.attended(gathered), training)
    neurons = layer.neurons(first_real_token(hidden, attention_mask))  # (B, neurons / block)
    inputs = parts.neurons(hidden) * neurons.repeat_interleave(gates.block, 1).unsqueeze(1)
    return parts.after_neurons(hidden, parts.summed(parts.activation(inputs)), training), Kept(heads, neurons)


def attend(parts: LayerParts, hidden: Tensor, mask: Tensor | None, training: bool) -> Tensor:
    """What every head gathers for every token, side by side: (B, T, d) to (B, T, heads · width)."""
    if not parts.heads:
        return hidden.new_zeros(*hidden.shape[:2], 0)
    query, key, value = (
        each(hidden).unflatten(-1, (parts.heads, parts.head_width)).transpose(1, 2)
        for each in (parts.query, parts.key, parts.value)
    )
    dropout = parts.attention_dropout if training else 0.0
    gathered = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return gathered.transpose(1, 2).flatten(2)
