"""Our own recipe: what the five papers found, in two phases and three numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes.base import Forward, Phase, Recipe, Schedule, everything, last_exit_loss, trunk_and_last_exit
from offramp.recipes.elasticbert import equilibrium


@dataclass(frozen=True)
class Offramp(Recipe):
    """First the last exit alone, as if there were no others (DeeBERT's first stage). Then all exits at once, from
    there on, with gradient equilibrium (ElasticBERT) and teachers (RomeBERT, and the fine-tuned model itself):

        L = Σ_i (1 − α) L(z_i, y) + α T² · mean over t ∈ teachers(i) of KL(softmax(t / T) ‖ softmax(z_i / T))

    The teachers of an exit are the last exit of the model as the first phase left it, which never changes; and, of the
    model as it learns, the next exit and the last one. The last exit has the first of them only. Teachers get no
    gradient. KL is per sample; a number has the squared error instead.

    Args:
        alpha, temperature: α and T.
        fine_tune: have the first phase, and its model as a teacher; without it training takes half the time.
    """

    reference = "offramp: fine-tune, then all exits with equilibrium and three teachers"

    alpha: float = 0.5
    temperature: float = 2.0
    fine_tune: bool = True
    schedule: Schedule = Schedule(epochs=3, batch_size=32, warmup=0.06, weight_decay=0.1)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise OfframpError(f"offramp: alpha is a share, 0 to 1, not {self.alpha}")
        if not self.temperature > 0:
            raise OfframpError(f"offramp: temperature must be more than 0, not {self.temperature}")

    def phases(self, model: MultiExitModel) -> list[Phase]:
        if len(model.exits) == 1:
            raise OfframpError("offramp needs exits below the last one: this model has none; use plain")
        first = Phase(
            "fine-tune",
            trains=trunk_and_last_exit(model),
            losses=(last_exit_loss,),
            exits="last",
            schedule=self.schedule,
        )
        joint = Phase(
            "joint",
            trains=everything(model),
            losses=(self.loss,),
            branch=equilibrium,
            teacher=self.fine_tune,
            schedule=self.schedule,
        )
        return [first, joint] if self.fine_tune else [joint]

    def loss(self, forward: Forward) -> Tensor:
        """L, with all exits that have as many teachers compared to them at once."""
        total = forward.logits[-1].new_zeros(())
        pairs: dict[int, list[tuple[Tensor, Tensor]]] = {}
        for exit, student in enumerate(forward.logits):
            teachers = self.teachers(forward, exit)
            total = total + (1 - self.alpha if teachers else 1.0) * forward.loss(exit)
            pairs.setdefault(len(teachers), []).extend((student, teacher) for teacher in teachers)
        for teachers_each, compared in pairs.items():
            if compared:
                students, taught = (torch.cat(answers) for answers in zip(*compared, strict=True))
                total = total + self.alpha * len(compared) / teachers_each * self.distance(forward, students, taught)
        return total

    @staticmethod
    def teachers(forward: Forward, exit: int) -> list[Tensor]:
        """Of one exit, by its place; none of the last where the first phase was left out."""
        last = len(forward.logits) - 1
        known = [] if forward.teacher is None else [forward.teacher[-1]]
        places = sorted({exit + 1, last}) if exit < last else []
        return known + [forward.logits[place].detach() for place in places]

    def distance(self, forward: Forward, student: Tensor, teacher: Tensor) -> Tensor:
        """T² KL, per sample."""
        # A classification's distance is a mean over the classes, too: not here.
        classes = student.shape[-1] if forward.objective.name == "classification" else 1
        return self.temperature**2 * classes * forward.objective.distil(student, teacher, self.temperature)
