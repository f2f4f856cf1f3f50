"""A short mark that tells one model's weights from another's."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

VALUES = 4096
"""That are looked at of each tensor, about: a step of training changes nearly all, and to read all takes too long."""


def weights_digest(model: nn.Module) -> str:
    """The same for the same weights, in whatever file they lie; another after any training."""
    mark = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(model.state_dict().items()):
        flat = weight.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // VALUES)].cpu().contiguous()
        mark.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        mark.update(some.view(torch.uint8).numpy().tobytes())
    return mark.hexdigest()
