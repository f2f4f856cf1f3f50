"""Muon (Jordan et al., 2024): matrices step along the nearest orthogonal matrix to their momentum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

STEPS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration that drives all singular values towards 1, chosen by Jordan for speed, not exactness."""


class Muon(torch.optim.Optimizer):
    """For the matrices inside layers; everything else is AdamW's.

        m ← μ m + (1 − μ) g,    u = (1 − μ) g + μ m,    W ← W − η (0.2 √max(rows, columns) · orthogonal(u) + λ W)

    With the factor 0.2 √max(…) (Liu et al., 2025) an update is as large as AdamW's typically is, so both take the same
    learning rate. Matrices of one shape are worked on together: a layer's are too small to fill a GPU one by one.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            present = sorted((p for p in group["params"] if p.grad is not None), key=_tall_shape)
            for _, same in groupby(present, key=_tall_shape):
                self._step_together(list(same), group)

    def _step_together(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """A list of matrices of one shape, or of its transpose."""
        momentum = group["momentum"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        moments = [self.state[parameter]["momentum"] for parameter in parameters]
        torch._foreach_lerp_(moments, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, moments, momentum)  # Nesterov
        updates = orthogonal(torch.stack([_tall(update) for update in ahead])).to(parameters[0].dtype).unbind()
        turned = [u if p.shape[0] >= p.shape[1] else u.mT for p, u in zip(parameters, updates, strict=True)]
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        size = 0.2 * max(parameters[0].shape) ** 0.5
        torch._foreach_add_(parameters, turned, alpha=-group["lr"] * size)


def orthogonal(matrices: Tensor) -> Tensor:
    """(N, rows ≥ columns): each with its singular values brought near 1, by Newton and Schulz's iteration."""
    a, b, c = COEFFICIENTS
    x: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        gram = x.mT @ x  # (N, columns, columns)
        x = a * x + x @ (b * gram + c * gram @ gram)
    return x


def _tall_shape(matrix: Tensor) -> tuple[int, int]:
    return max(matrix.shape), min(matrix.shape)


def _tall(matrix: Tensor) -> Tensor:
    return matrix.mT if matrix.shape[0] < matrix.shape[1] else matrix
