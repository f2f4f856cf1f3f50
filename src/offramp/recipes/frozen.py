"""A model that is fine-tuned already: it stays as it is, and its new exits learn to say what it says."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import Forward, Phase, Recipe, Schedule, exits_below_last, exits_only


@dataclass(frozen=True)
class Frozen(Recipe):
    """One phase. Backbone and last exit stand still and are the teacher of all other exits, on any texts:

        L = Σ_{i<n} T² · D(z_i / T, z_n / T)

    D is the objective's distance from a teacher: a divergence, or of numbers the squared error. Labels have no part
    in it: what an exit is to say is what the model would.

    Where one head serves the last exit and others, it cannot stand still for one and learn for the others: it learns.

    Args:
        temperature: T.
    """

    reference = "teaching exits what the fine-tuned model says"

    temperature: float = 2.0
    schedule: Schedule = Schedule(learning_rate=1e-3, epochs=10, batch_size=64, warmup=0.05, weight_decay=0.01)

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise OfframpError(f"frozen: temperature must be more than 0, not {self.temperature}")

    def prepare(self, model: MultiExitModel) -> None:
        """Refuse a model whose last exit knows nothing."""
        if len(model.exits) - 1 in model.config.untrained_exits:
            raise OfframpError(
                "frozen keeps the model as it is, and this one has no classifier yet: fine-tune it first, as by plain"
            )

    def phases(self, model: MultiExitModel) -> list[Phase]:
        if len(model.exits) == 1:
            raise OfframpError("frozen needs exits below the last one: this model has none")
        trains = exits_below_last(model) or exits_only(model)
        return [Phase("exits", trains=trains, losses=(self.loss,), schedule=self.schedule)]

    def loss(self, forward: Forward) -> Tensor:
        """L"""
        *exits, last = forward.logits
        t = self.temperature
        total: Tensor = sum(t**2 * forward.objective.distil(exit, last.detach(), t) for exit in exits)  # type: ignore[assignment]
        return total
