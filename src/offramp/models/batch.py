"""Look at a batch before computing: wrong ids and empty rows give a message here instead of noise later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from offramp.backbones import Backbone
from offramp.errors import OfframpError


def check_batch(
    backbone: Backbone, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None = None
) -> Tensor:
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
    for name, other in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
        if other is not None and other.shape != input_ids.shape:
            shapes = f"{name} is {tuple(other.shape)}, input_ids {tuple(input_ids.shape)}"
            raise OfframpError(f"{shapes}: they must have the same shape")
    if not torch.compiler.is_compiling() and not (input_ids.is_cuda and torch.cuda.is_current_stream_capturing()):
        _check_range("token id", input_ids, backbone.vocab_size, "vocabulary")
        if token_type_ids is not None:
            _check_range("token type", token_type_ids, backbone.config.type_vocab_size, "token types")
        _check_rows(attention_mask)
    return attention_mask


def refuse_unknown_inputs(inputs: Mapping[str, Any]) -> None:
    """What Hugging Face models take and ours cannot honour is refused, not ignored."""
    for name in ("position_ids", "inputs_embeds", "head_mask", "output_attentions"):
        if inputs.get(name) is not None and inputs[name] is not False:
            raise OfframpError(f"{name} is not supported by multi-exit models")


def _check_range(what: str, ids: Tensor, size: int, table: str) -> None:
    lowest, highest = (int(bound) for bound in torch.aminmax(ids))
    if lowest < 0 or highest >= size:
        raise OfframpError(
            f"{what} {lowest if lowest < 0 else highest} is outside the {table} of {size}: "
            "use the tokenizer that belongs to this model"
        )


def _check_rows(attention_mask: Tensor) -> None:
    empty = (attention_mask != 0).sum(1) == 0
    if bool(empty.any()):
        row = int(empty.nonzero()[0])
        raise OfframpError(f"row {row} of the batch is all padding: give it at least one real token")
