"""One vector for each row of a batch."""

from __future__ import annotations

import torch
from torch import Tensor


def first_real_token(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """(B, T, H) to (B, H); the first that is no padding, since some tokenizers pad on the left."""
    first = (attention_mask != 0).int().argmax(1)
    return hidden[torch.arange(len(hidden), device=hidden.device), first]


def mean_over(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """The mean over the positions marked 1: (B, T, H) to (B, H)."""
    wide = hidden if hidden.dtype == torch.float64 else hidden.float()  # half a float is soon full
    marked = attention_mask.unsqueeze(-1).to(wide.dtype)  # (B, T, 1)
    return ((wide * marked).sum(1) / marked.sum(1)).to(hidden.dtype)
