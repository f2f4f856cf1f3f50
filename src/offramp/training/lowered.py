"""The weights of linear maps in the precision they are multiplied in, cast all at once.

Autocast casts each weight and each bias where it is used, and each gradient on its way back: in a small model these
casts are every third kernel of a step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from offramp.models import MultiExitModel


class LoweredWeights:
    """What `LoweredWeights(model).in_place()` computes under autocast is, bit for bit, what the model computes."""

    def __init__(self, model: MultiExitModel) -> None:
        self.places = [
            (linear, name) for linear in linear_maps_used_once(model) for name, _ in linear.named_parameters()
        ]

    @contextmanager
    def in_place(self, device: torch.device) -> Iterator[None]:
        """Inside, weights are lowered ones, whose gradients reach the real ones; without autocast nothing happens."""
        if not torch.is_autocast_enabled(device.type):
            yield
            return
        real = [linear.get_parameter(name) for linear, name in self.places]
        self._put(lower(real, torch.get_autocast_dtype(device.type)))
        try:
            yield
        finally:
            self._put(real)

    def _put(self, weights: Sequence[Tensor]) -> None:
        for (linear, name), values in zip(self.places, weights, strict=True):
            linear._parameters[name] = values  # type: ignore[assignment]  # a tensor with a history will do


def linear_maps_used_once(model: MultiExitModel) -> list[nn.Linear]:
    """Of the layers and exits. A map that a pass goes through several times has a gradient from each, and these are not
    to be added up in low precision.
    """
    parts = [model.backbone.layer_module(index) for index in range(model.backbone.depth)]
    exits = model.exits
    parts += [exits.poolers[str(number)] for number in exits.pooler_of]
    parts += [exits.classifiers[str(number)] for number in exits.classifier_of]
    uses = Counter(parts)
    return [module for part in parts if uses[part] == 1 for module in part.modules() if isinstance(module, nn.Linear)]


def lower_for_good(model: MultiExitModel, dtype: torch.dtype) -> None:
    """Of a model that never learns, and is asked under autocast to `dtype` only. With gates it stays as it is: layers
    that skip do without autocast.
    """
    if model.gates is None:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.to(dtype)


def lower(weights: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Cast; only what learns has a history."""
    learning = [values for values in weights if values.requires_grad]
    frozen = [values for values in weights if not values.requires_grad]
    cast = iter(_Lower.apply(dtype, *learning)) if learning else iter(())
    still = iter(cast_together(frozen, dtype))
    return [next(cast) if values.requires_grad else next(still) for values in weights]


@torch.no_grad()
def cast_together(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    cast = [torch.empty_like(values, dtype=dtype) for values in tensors]
    if cast:
        torch._foreach_copy_(cast, tensors)
    return cast


class _Lower(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        return tuple(cast_together(list(weights), dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        raised = iter(cast_together([values for values in gradients if values is not None], torch.float32))
        return (None, *(None if values is None else next(raised) for values in gradients))
