"""What the graphs cannot run, and why: the engine then takes another way."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from offramp.errors import OfframpError
from offramp.models import MultiExitModel

WIDEST = 8192
"""Hidden states of one token that a norm holds at once."""
WIDEST_HEAD = 256


def why_not(model: MultiExitModel, device: torch.device | str) -> str | None:
    """Why `GraphRunner` cannot take this model there; None where it can."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return "CUDA graphs need a CUDA device"
    if find_spec("triton") is None:
        return "triton is not installed"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the device is older than the kernels (compute capability 8.0)"
    return _why_not_this_model(model)


def _why_not_this_model(model: MultiExitModel) -> str | None:
    exits = model.exits
    if model.gates is not None:
        return "gated layers do not run in graphs"
    if model.config.classifier_size is not None:
        return "classifiers with a hidden layer do not run in graphs"
    if exits.each_token:
        return "spans do not run in graphs"
    if (most := max(map(len, exits.pooling_of))) > 3:
        return f"graphs add up three poolings at most, not {most}"
    if exits.pool_padding and set(exits.pooling_of) != {("first",)}:
        return "packed rows have no padding to pool"
    try:
        parts = [model.backbone.parts(index) for index in range(model.backbone.depth)]
    except OfframpError:
        return "several layers in one group do not run in graphs"
    if model.backbone.hidden_size > WIDEST or max(part.head_width for part in parts) > WIDEST_HEAD:
        return f"graphs take hidden states up to {WIDEST} wide and heads up to {WIDEST_HEAD}"
    return None
