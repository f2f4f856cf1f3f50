"""Channels brought to like size before they are rounded: some are many times larger than others, in every text.

Each is divided by a number of its own, and the weights that it meets are multiplied by it (SmoothQuant). Which are
large shows with any text, so random tokens will do, and nothing has to be calibrated.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offramp.models import MultiExitModel
from offramp.models.modes import answering

ROWS, TOKENS = 4, 32
SHARE = 0.75
"""Of the differences between channels, what the weights take over: they have to be rounded, too."""
FLOOR = 1e-3
"""Of the largest channel: one that was silent for random tokens may speak for others."""
TINY = 1e-12


@torch.no_grad()
def largest_inputs(model: MultiExitModel) -> dict[nn.Module, NDArray[np.float32]]:
    """The largest number in each channel (H,) that a layer's `query` and `neurons` are given, whatever else is."""
    largest: dict[nn.Module, Tensor] = {}

    def look(linear: nn.Module, given: tuple[Tensor, ...]) -> None:
        now = given[0].float().nan_to_num(0, 0, 0).abs().amax((0, 1))
        largest[linear] = torch.maximum(now, largest.get(linear, now))

    backbone = model.backbone
    parts = [backbone.parts(index) for index in range(backbone.depth)]
    seen = {linear for part in parts for linear in (part.query, part.neurons)}  # shared layers look once a call
    hooks = [linear.register_forward_pre_hook(look) for linear in seen]
    shape = (ROWS, min(TOKENS, backbone.max_length))
    ids = torch.randint(backbone.vocab_size, shape, generator=torch.Generator().manual_seed(0)).to(model.device)
    try:
        with answering(model):
            hidden = backbone.embed(ids)
            mask = backbone.mask(torch.ones_like(ids), hidden)
            for index in range(backbone.depth):
                hidden = backbone.layer(index, hidden, mask)
    finally:
        for hook in hooks:
            hook.remove()
    return {linear: found.cpu().numpy() for linear, found in largest.items()}


def divisors(largest: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """What to divide each channel by (H,), for a matrix (H, outputs)."""
    channels, rows = (
        size + FLOOR * size.max() + TINY for size in (np.asarray(largest, np.float64), np.abs(weight).max(1))
    )
    found: NDArray[np.float32] = (channels**SHARE / rows ** (1 - SHARE)).astype(np.float32)
    return found
