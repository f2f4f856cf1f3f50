"""RomeBERT (Geng et al., 2021): every exit learns from the labels and from the last exit, in one phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import Forward, Phase, Recipe, Schedule, everything, last_exit_loss, one_of
from offramp.recipes.gradients import ProjectConflicts, scale_gradient


@dataclass(frozen=True)
class RomeBERT(Recipe):
    """Self-distillation (SD), and gradient regularisation (GR) of what the two losses ask of the shared layers:

        L_f = L(z_n, y)
        L_s = Σ_{i<n} (1 − γ) L(z_i, y) + γ T² KL(softmax(z_n / T) ‖ softmax(z_i / T))

    KL is averaged over samples and classes, and the teacher z_n gets no gradient from it. With GR the gradient of one
    loss is projected so that it does not work against the other's, on the weight matrices of all layers but the last.

    Args:
        gamma, temperature: γ and T.
        regularise: project conflicting gradients (GR); costs a second backward pass.
        first: the loss whose gradient is left as it is. The paper's rule is `distillation`; the released code takes
            `last` for MNLI and QQP.
        equilibrium: the code's unused `--ge`: the gradient entering exit i is divided by n − i + 1.
    """

    reference = "RomeBERT (Geng et al., 2021)"

    gamma: float = 0.9
    temperature: float = 3.0
    regularise: bool = True
    first: Literal["distillation", "last"] = "distillation"
    equilibrium: bool = False
    schedule: Schedule = Schedule()

    def __post_init__(self) -> None:
        one_of("first", self.first, ("distillation", "last"))
        check_distillation(self.name, self.gamma, self.temperature)

    def phases(self, model: MultiExitModel) -> list[Phase]:
        if len(model.exits) == 1:
            raise OfframpError("romebert needs exits below the last one: this model has none; use plain")
        losses = (self.distillation, last_exit_loss)
        shared = frozenset(f"backbone.{name}" for name, _ in model.backbone.matrices_below_last_layer())
        return [
            Phase(
                "self-distillation",
                trains=everything(model),
                losses=losses if self.first == "distillation" else losses[::-1],
                edit_gradients=ProjectConflicts(shared) if self.regularise else None,
                schedule=self.schedule,
            )
        ]

    def distillation(self, forward: Forward) -> Tensor:
        """L_s = M + D"""
        return self.hard(forward) + self.soft(forward)

    def hard(self, forward: Forward) -> Tensor:
        """M = Σ_{i<n} (1 − γ) L(z_i, y)"""
        return (1 - self.gamma) * self._over_early_exits(forward, lambda z: forward.objective.loss(z, forward.target))

    def soft(self, forward: Forward) -> Tensor:
        """D = Σ_{i<n} γ T² KL(z_n / T ‖ z_i / T)"""
        teacher, t = forward.logits[-1].detach(), self.temperature
        return self.gamma * t**2 * self._over_early_exits(forward, lambda z: forward.objective.distil(z, teacher, t))

    def _over_early_exits(self, forward: Forward, loss: Callable[[Tensor], Tensor]) -> Tensor:
        exits = len(forward.logits)
        total = forward.logits[-1].new_zeros(())
        for i, z in enumerate(forward.logits[:-1]):
            total = total + loss(scale_gradient(z, 1 / (exits - i)) if self.equilibrium else z)
        return total


def check_distillation(recipe: str, gamma: float, temperature: float) -> None:
    """Refuse what no distillation can mean."""
    if not 0 <= gamma <= 1:
        raise OfframpError(f"{recipe}: gamma is a share, 0 to 1, not {gamma}")
    if not temperature > 0:
        raise OfframpError(f"{recipe}: temperature must be more than 0, not {temperature}")
