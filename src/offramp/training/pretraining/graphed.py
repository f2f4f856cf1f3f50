"""A pre-training step as CUDA graphs: one for each group of exits and each kind and length of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from offramp.training.graphed import GraphedPasses, Passed
from offramp.training.pretraining.rows import StepRows

Compute = Callable[[StepRows, Sequence[int], "Tensor | None"], Tensor]
"""Rows, exits and the number of rows asked for their order, to losses; gradients are left on the parameters."""

ASKED = "asked"


class GraphedStep:
    """Computes what `compute` does. Each group of exits, and each length of rows, is captured when it first comes."""

    def __init__(self, compute: Compute, parameters: Sequence[Tensor]) -> None:
        self.compute = compute
        self.parameters = {str(number): parameter for number, parameter in enumerate(parameters)}
        self.passes = GraphedPasses(parameters[0].device)

    def __call__(self, rows: StepRows, exits: Sequence[int], asked: Tensor | None) -> Tensor:
        batch = rows.tensors()
        if asked is not None:
            batch[ASKED] = asked
        losses, [gradients] = self.passes(tuple(exits), batch, lambda inputs: self._pass(type(rows), inputs, exits))
        for name, gradient in gradients.items():
            self.parameters[name].grad = gradient
        return losses.clone()

    def _pass(self, kind: type[StepRows], inputs: dict[str, Tensor], exits: Sequence[int]) -> Passed:
        self._forget_gradients()
        fields = {name: inputs.get(name) for name in kind.__dataclass_fields__}
        losses = self.compute(kind(**fields), exits, inputs.get(ASKED))  # type: ignore[arg-type]
        found = {name: grad for name, parameter in self.parameters.items() if (grad := parameter.grad) is not None}
        self._forget_gradients()
        return Passed(losses, [found])

    def _forget_gradients(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None
