"""DeeBERT (Xin et al., 2020): fine-tune first, then teach the exits while the backbone stands still."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import (
    Phase,
    Recipe,
    Schedule,
    exits_below_last,
    exits_only,
    last_exit_loss,
    sum_of_losses,
    trunk_and_last_exit,
)


@dataclass(frozen=True)
class DeeBERT(Recipe):
    """Two stages with the same settings:

        stage 1:  L = L(z_n, y)             trains the backbone and the last exit
        stage 2:  L = Σ_{i<n} L(z_i, y)     trains the other exits; the backbone has no gradient

    Where one head serves the last exit and others, it cannot stand still for one and learn for the others: stage 2
    then trains the heads on all exits.

    Args:
        clip_sees_frozen: count the backbone's gradient in stage 2's clipped norm, as the released code does by
            computing and discarding it.
    """

    reference = "DeeBERT (Xin et al., ACL 2020)"

    schedule: Schedule = Schedule()
    clip_sees_frozen: bool = False

    def phases(self, model: MultiExitModel) -> list[Phase]:
        if len(model.exits) == 1:
            raise OfframpError("deebert needs exits below the last one: this model has none; use plain")
        own = exits_below_last(model)
        return [
            Phase(
                "fine-tune",
                trains=trunk_and_last_exit(model),
                losses=(last_exit_loss,),
                exits="last",
                schedule=self.schedule,
            ),
            Phase(
                "exits",
                trains=own or exits_only(model),
                losses=(sum_of_losses,),
                exits="early" if own else "all",
                clip_sees_frozen=self.clip_sees_frozen,
                schedule=self.schedule,
            ),
        ]
