"""ELBERT (Xie et al., 2021): joint training of an ALBERT's exits, with loss weights that learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import ConstantGroup, Forward, Phase, Recipe, Schedule, everything, one_of, sum_of_losses

WEIGHTS = "loss_weights"
"""The parameter's name in the model, and so in the saved weights."""


@dataclass(frozen=True)
class ELBERT(Recipe):
    """L = Σ_i w_i L(z_i, y)  with  w_i = 1 (`equal`)  or, learned along with the model (`dynamic`),

        w_i = σ(W_i) for i < n,    w_n = n − Σ_{i<n} σ(W_i)

    so that the weights always add up to n, and an exit that is worse than the last one loses weight.

    Args:
        weights: `dynamic` or `equal`.
        initial: first value of every W_i.
        weights_rate: the constant learning rate of W.
        keep_gradient: never zero W's gradient, as in the released code (parity only).
    """

    reference = "ELBERT (Xie et al., ICASSP 2021)"

    weights: Literal["dynamic", "equal"] = "dynamic"
    initial: float = 4.0
    weights_rate: float = 1e-2
    keep_gradient: bool = False
    schedule: Schedule = Schedule(learning_rate=3e-5, batch_size=32)

    def __post_init__(self) -> None:
        one_of("weights", self.weights, ("dynamic", "equal"))

    def prepare(self, model: MultiExitModel) -> None:
        if self.weights == "equal" or model.config.learned_loss_weights:
            return
        if len(model.exits) == 1:
            raise OfframpError("elbert's dynamic weights need exits below the last one: this model has none; use plain")
        like = next(model.exits.parameters())
        initial = torch.full((len(model.exits) - 1,), self.initial, dtype=like.dtype, device=like.device)
        model.loss_weights = nn.Parameter(initial)
        model.config.learned_loss_weights = True

    def phases(self, model: MultiExitModel) -> list[Phase]:
        dynamic = self.weights == "dynamic"
        group = ConstantGroup(frozenset({WEIGHTS}), self.weights_rate, self.keep_gradient)
        return [
            Phase(
                "joint",
                trains=everything(model) if dynamic else everything(model) - {WEIGHTS},
                losses=(weighted_sum_of_losses if dynamic else sum_of_losses,),
                constant_groups=(group,) if dynamic else (),
                schedule=self.schedule,
            )
        ]


def exit_weights(raw: Tensor) -> Tensor:
    """w (n,) from W (n-1,): inner weights in (0, 1), the last takes the rest, all add up to n."""
    inner = raw.sigmoid()
    return torch.cat([inner, (len(raw) + 1 - inner.sum()).unsqueeze(0)])


def weighted_sum_of_losses(forward: Forward) -> Tensor:
    """Σ_i w_i L(z_i, y)"""
    return (exit_weights(forward.model.loss_weights) * torch.stack(forward.losses())).sum()
