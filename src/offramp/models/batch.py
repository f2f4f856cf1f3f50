"""Look at a batch before computing: wrong ids and empty rows give a message here instead of noise later."""

from __future__ import annotations

import torch
from torch import Tensor

from offramp.backbones import Backbone
from offramp.errors import OfframpError


def check_batch(backbone: Backbone, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Refuse what the backbone cannot answer; return the attention mask (all ones where none was given)."""
    if input_ids.ndim != 2:
        raise OfframpError(f"input_ids must be (batch, tokens), not {tuple(input_ids.shape)}")
    rows, tokens = input_ids.shape
    if rows == 0 or tokens == 0:
        raise OfframpError(f"the batch is empty: {rows} rows of {tokens} tokens")
    if tokens > backbone.max_length:
        raise OfframpError(f"{tokens} tokens, but the backbone takes {backbone.max_length}: truncate the texts")
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    if attention_mask.shape != input_ids.shape:
        raise OfframpError(
            f"attention_mask is {tuple(attention_mask.shape)}, input_ids {tuple(input_ids.shape)}: they must be equal"
        )
    if not torch.compiler.is_compiling():
        _check_values(backbone, input_ids, attention_mask)
    return attention_mask


def _check_values(backbone: Backbone, input_ids: Tensor, attention_mask: Tensor) -> None:
    lowest, highest = (int(bound) for bound in torch.aminmax(input_ids))
    if lowest < 0 or highest >= backbone.vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise OfframpError(
            f"token id {wrong} is outside the vocabulary of {backbone.vocab_size}: "
            "use the tokenizer that belongs to this model"
        )
    empty = (attention_mask != 0).sum(1) == 0
    if bool(empty.any()):
        row = int(empty.nonzero()[0])
        raise OfframpError(f"row {row} of the batch is all padding: give it at least one real token")
