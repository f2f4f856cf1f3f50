"""DeeBERT (Xin et al., 2020): fine-tune first, then teach the exits while the backbone stands still."""

from __future__ import annotations

from dataclasses import dataclass

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import (
    Loss,
    Phase,
    Recipe,
    Schedule,
    exits_below_last,
    exits_only,
    last_exit_loss,
    sum_of_losses,
    trunk_and_last_exit,
)
from offramp.recipes.romebert import RomeBERT, check_distillation

SD_GAMMA = 0.9
"""The share of self-distillation in DeeBERT+SD: RomeBERT's own."""


@dataclass(frozen=True)
class DeeBERT(Recipe):
    """Two stages with the same settings:

        stage 1:  L = L(z_n, y)             trains the backbone and the last exit
        stage 2:  L = Σ_{i<n} L(z_i, y)     trains the other exits; the backbone has no gradient

    DeeBERT+SD, which the RomeBERT paper compares itself with, is the same with RomeBERT's self-distillation in stage 2:

        stage 2:  L = Σ_{i<n} (1 − γ) L(z_i, y) + γ T² KL(softmax(z_n / T) ‖ softmax(z_i / T))

    Where one head serves the last exit and others, it cannot stand still for one and learn for the others: stage 2
    then trains the heads on all exits.

    Args:
        clip_sees_frozen: count the backbone's gradient in stage 2's clipped norm, as the released code does by
            computing and discarding it.
        gamma: γ, the share of self-distillation in stage 2. 0 is DeeBERT, 0.9 is DeeBERT+SD.
        temperature: T, of the distillation.
    """

    reference = "DeeBERT (Xin et al., ACL 2020)"

    schedule: Schedule = Schedule()
    clip_sees_frozen: bool = False
    gamma: float = 0.0
    temperature: float = 3.0

    def __post_init__(self) -> None:
        check_distillation(self.name, self.gamma, self.temperature)

    @property
    def full_name(self) -> str:
        return f"{self.name}+sd" if self.gamma else self.name

    def phases(self, model: MultiExitModel) -> list[Phase]:
        if len(model.exits) == 1:
            raise OfframpError("deebert needs exits below the last one: this model has none; use plain")
        own = exits_below_last(model)
        losses: tuple[Loss, ...] = (sum_of_losses,)
        if self.gamma:
            distilled = RomeBERT(gamma=self.gamma, temperature=self.temperature).distillation
            losses = (distilled,) if own else (distilled, last_exit_loss)
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
                losses=losses,
                exits="early" if own and not self.gamma else "all",  # the last exit is the teacher
                clip_sees_frozen=self.clip_sees_frozen,
                schedule=self.schedule,
            ),
        ]
