"""The micro-batches of a phase as CUDA graphs, where the phase allows it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from offramp.errors import one_line
from offramp.models import MultiExitModel
from offramp.models.batch import check_batch
from offramp.models.gates import gates_see_padding
from offramp.recipes import Gradients
from offramp.training.graphed import GraphedPasses, Passed
from offramp.training.lowered import LoweredWeights
from offramp.training.phase_gradients import PhaseGradients

FINE, COARSE, FINE_UP_TO = 16, 32, 128

log = logging.getLogger(__name__)


def padded_length(longest: int, most: int) -> int:
    """The length that rows are padded to where each length is a graph: few lengths, little padding, never too much."""
    step = FINE if longest <= FINE_UP_TO else COARSE
    return max(longest, min(-(-longest // step) * step, most))


def sees_padding(model: MultiExitModel) -> bool:
    """Whether what a row says depends on how far it is padded, as in some released code: then lengths stay."""
    return bool(model.config.pool_padding) or gates_see_padding(model.gates)


class GraphedPhase:
    """Adds the gradient of micro-batches, each shape of them captured when it first comes.

    A phase that cannot be captured is computed as ever: one line in the log says why.
    """

    def __init__(
        self, gradients: PhaseGradients, device: torch.device, autocast: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self.gradients = gradients
        self.device = device
        self.autocast = autocast
        model = gradients.model
        self.weights = LoweredWeights(model)
        self.works = device.type == "cuda" and not sees_padding(model)
        left_alone = list(model.gates.buffers()) if model.gates is not None else []
        self.passes = GraphedPasses(device, left_alone, unknown=True)

    def add(self, batch: Mapping[str, Tensor], share: float) -> Tensor | None:
        """Add a micro-batch's gradient, times `share`; return its loss, times `share`, or None if nothing was done."""
        backbone, types = self.gradients.model.backbone, batch.get("token_type_ids")
        check_batch(backbone, batch["input_ids"], batch["attention_mask"], types)  # here: a graph looks at nothing
        earlier = [self._apart(sums) for sums in self.gradients.held()]
        try:
            passed = self.passes(share, batch, lambda inputs: self._pass(inputs, share))
        except Exception as error:  # whatever it was: if it is not for the graph's sake, it will come again
            self.works = False
            self.forget()
            self.gradients.hold(earlier)
            log.warning("%s: not as CUDA graphs (%s)", self.gradients.phase.name, one_line(error))
            return None
        found = passed.gradients
        if any(earlier):
            found = [summed(sums, more) for sums, more in zip(earlier, found, strict=True)]
        self.gradients.hold([dict(gradients) for gradients in found])
        return passed.losses.clone()

    def forget(self) -> None:
        """Give the graphs' memory back."""
        self.passes.forget()

    def _apart(self, sums: Gradients) -> Gradients:
        """Out of the way of the next replay, which writes its gradients where those of the last one lie."""
        if not sums:
            return {}
        return dict(zip(sums, torch._foreach_mul(list(sums.values()), 1.0), strict=True))

    def _pass(self, inputs: dict[str, Tensor], share: float) -> Passed:
        with self.autocast(), self.weights.in_place(self.device):
            losses = self.gradients.losses(inputs, share)
        gradients = self.gradients.gradients_of(losses)
        return Passed(torch.stack(losses).detach().sum(), gradients)


def summed(left: Gradients, right: Gradients) -> Gradients:
    """Of each parameter's gradients, where it has two; the sums lie where `right` lay."""
    both = [name for name in right if name in left]
    if both:
        torch._foreach_add_([right[name] for name in both], [left[name] for name in both])
    return {**left, **right}
