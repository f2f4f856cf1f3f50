"""A step's forward and backward pass as one CUDA graph: hundreds of small launches become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from offramp.training.pretraining.rows import Rows

WARM_UP = 3
"""Passes before capture: compilers and libraries choose their kernels in them."""

Compute = Callable[[Rows, Sequence[int], "Tensor | None"], Tensor]
"""Rows, exits and the number of rows asked for their order, to losses; gradients are left on the parameters."""


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    rows: Rows
    asked: Tensor | None
    losses: Tensor
    gradients: list[tuple[Tensor, Tensor]]


class GraphedStep:
    """Computes what `compute` does. Each group of exits, and each length of rows, is captured when it first comes."""

    def __init__(self, compute: Compute, parameters: Sequence[Tensor]) -> None:
        self.compute = compute
        self.parameters = parameters
        self.captured: dict[tuple[tuple[int, ...], torch.Size], _Captured] = {}

    def __call__(self, rows: Rows, exits: Sequence[int], asked: Tensor | None) -> Tensor:
        key = (tuple(exits), rows.ids.shape)
        if key not in self.captured:
            self.captured[key] = self._capture(rows, exits, asked)
        captured = self.captured[key]
        captured.rows.take(rows)
        if captured.asked is not None and asked is not None:
            captured.asked.copy_(asked)
        captured.graph.replay()
        for parameter, gradient in captured.gradients:
            parameter.grad = gradient
        return captured.losses.clone()

    def _capture(self, rows: Rows, exits: Sequence[int], asked: Tensor | None) -> _Captured:
        device = self.parameters[0].device
        rows, asked = rows.to(device), None if asked is None else asked.clone()
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                self._forget_gradients()
                self.compute(rows, exits, asked)
        torch.cuda.current_stream(device).wait_stream(aside)
        self._forget_gradients()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # rows are made in another thread
            losses = self.compute(rows, exits, asked)
        gradients = [(parameter, parameter.grad) for parameter in self.parameters if parameter.grad is not None]
        return _Captured(graph, rows, asked, losses, gradients)

    def _forget_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
