"""Plain fine-tuning: the baseline of every paper."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.models import MultiExitModel
from offramp.recipes.base import Phase, Recipe, Schedule, last_exit_loss, trunk_and_last_exit


@dataclass(frozen=True)
class Plain(Recipe):
    """Only the last exit learns:  L = L(z_n, y).

    On a model cut after k layers (`offramp.load(..., layers=k, exits="last")`) this is the static baseline of k layers.
    """

    reference = "plain fine-tuning of the last exit"

    schedule: Schedule = Schedule()

    def phases(self, model: MultiExitModel) -> list[Phase]:
        return [
            Phase(
                "fine-tune",
                trains=trunk_and_last_exit(model),
                losses=(last_exit_loss,),
                exits="last",
                schedule=self.schedule,
            )
        ]
