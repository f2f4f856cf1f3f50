"""Operations on gradients that recipes share: scaling on the way back, and projecting conflicts away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from offramp.recipes.base import Gradients


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(values: Tensor, factor: float) -> Tensor:
    """The same values; their gradient is multiplied by `factor`."""
    scaled: Tensor = _Scale.apply(values, factor)
    return scaled


@dataclass(frozen=True)
class Conflict:
    """How two gradients, each flattened to one long vector, lie to each other."""

    first: float  # <a, a>
    second: float  # <b, b>
    inner: float  # <a, b>

    @property
    def coefficient(self) -> float:
        """c = <a, b> / <a, a>; 0 where there is no first gradient."""
        return self.inner / self.first if self.first else 0.0


def conflict(first: Gradients, second: Gradients, names: frozenset[str]) -> Conflict:
    """Measure two gradients on the named parameters."""

    def inner(left: Gradients, right: Gradients) -> float:
        return sum(float((left[name] * right[name]).sum()) for name in sorted(names & left.keys() & right.keys()))

    return Conflict(inner(first, first), inner(second, second), inner(first, second))


@dataclass(frozen=True)
class ProjectConflicts:
    """On the named parameters, take from the second gradient b what works against the first gradient a:

        b' = b − min(<a, b> / <a, a>, 0) · a,        step with a + b'

    One inner product over all of them together; every other parameter gets the plain sum.
    """

    names: frozenset[str]

    def __call__(self, first: Gradients, second: Gradients) -> Gradients:
        if all(gradient.is_cuda for gradient in first.values()):
            return self.without_waiting(first, second)
        against = min(conflict(first, second, self.names).coefficient, 0.0)
        merged = dict(second)
        for name, a in first.items():
            shared = (1.0 - against) * a if name in self.names else a
            merged[name] = shared + second[name] if name in second else shared
        return merged

    def without_waiting(self, first: Gradients, second: Gradients) -> Gradients:
        """The same in few launches, and without a number that the host would have to wait for."""
        shared, merged = [name for name in first if name in self.names], dict(first)
        if both := [name for name in shared if name in second]:
            a, b = (torch.cat([each[name].flatten() for name in both]) for each in (first, second))
            length = torch.stack(torch._foreach_norm([first[name] for name in shared])).square().sum()
            against = torch.where(length > 0, a.dot(b) / length, 0.0).clamp(max=0.0)
            merged |= zip(shared, torch._foreach_mul([first[name] for name in shared], 1.0 - against), strict=True)
        if common := [name for name in merged if name in second]:
            sums = torch._foreach_add([merged[name] for name in common], [second[name] for name in common])
            merged |= zip(common, sums, strict=True)
        return {**second, **merged}
