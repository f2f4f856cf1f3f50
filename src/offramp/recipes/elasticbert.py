"""ElasticBERT's fine-tuning (Liu et al., 2022): all exits at once, with gradient equilibrium."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from offramp.models import MultiExitModel
from offramp.recipes.base import Phase, Recipe, Schedule, everything, sum_of_losses
from offramp.recipes.gradients import scale_gradient


@dataclass(frozen=True)
class ElasticBERT(Recipe):
    """L = Σ_i L(z_i, y), where layer i's weights get the *mean* of the gradients of the exits above them:

        ∇_i = 1 / (n − i + 1) · Σ_{j ≥ i} ∇_i L(z_j, y)

    The exits' own weights get their loss's gradient as it is, and the embeddings are treated as layer 1.
    """

    reference = "ElasticBERT (Liu et al., NAACL 2022)"

    equilibrium: bool = True
    schedule: Schedule = Schedule(epochs=5, batch_size=32, warmup=0.06, weight_decay=0.1)

    def phases(self, model: MultiExitModel) -> list[Phase]:
        return [
            Phase(
                "joint",
                trains=everything(model),
                losses=(sum_of_losses,),
                branch=equilibrium if self.equilibrium else None,
                schedule=self.schedule,
            )
        ]


def equilibrium(hidden: Tensor, at_or_above: float, above: float) -> tuple[Tensor, Tensor]:
    """Divide what comes back from this layer's exit and from above by their number, without touching the forward pass.

    From above comes a mean over `above` exits, so it is multiplied by `above` first.
    """
    shared = scale_gradient(hidden, 1 / at_or_above)
    return shared, scale_gradient(shared, above)
