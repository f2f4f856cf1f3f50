"""Forward and backward of a micro-batch as one CUDA graph: hundreds of small launches become one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from offramp.broken_capture import as_it_was_on_failure

WARM_UP = 3
"""Passes before capture: compilers and libraries choose their kernels in them."""

Gradients = dict[str, Tensor]
"""A gradient for each parameter name; parameters that are not reached are absent."""


class Passed(NamedTuple):
    """What a pass gives."""

    losses: Tensor
    gradients: list[Gradients]


Compute = Callable[[dict[str, Tensor]], Passed]
"""A batch on the GPU to its losses, without history, and to the gradients of one loss or of several."""


class NotCapturable(RuntimeError):
    """What a pass does cannot be part of a graph."""


class _Captured(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    passed: Passed


class GraphedPasses:
    """Computes what `compute` does. Each key, and each shape of its batches, is captured when it first comes.

    All graphs take their memory from one pool and write their gradients into the same tensors: what a call gives is
    good until the next call. Random numbers go on from replay to replay, as they would without graphs.

    `left_alone` is what a pass changes besides, such as running means: the passes before a capture do not count.
    `unknown` says that compute may do what no graph can: `NotCapturable` is then raised in time. (What is compiled
    would not be under such supervision.)
    """

    def __init__(self, device: torch.device, left_alone: Sequence[Tensor] = (), unknown: bool = False) -> None:
        self.device = device
        self.supervision: Callable[[], AbstractContextManager[Any]] = NoWaiting if unknown else nullcontext
        self.left_alone = list(left_alone)
        self.captured: dict[Hashable, _Captured] = {}
        self.gradients: list[Gradients] = []
        self._pool: Any = None
        self._aside: Any = None

    def __call__(self, key: Hashable, batch: Mapping[str, Tensor], compute: Compute) -> Passed:
        key = (key, tuple((name, values.shape, values.dtype) for name, values in batch.items()))
        if key not in self.captured:
            self.captured[key] = self._capture(batch, compute)
        captured = self.captured[key]
        for name, values in batch.items():
            captured.inputs[name].copy_(pinned(values), non_blocking=True)
        captured.graph.replay()
        return captured.passed

    def forget(self) -> None:
        """Give all memory back."""
        self.captured.clear()
        self.gradients = []
        self._pool = None

    def _capture(self, batch: Mapping[str, Tensor], compute: Compute) -> _Captured:
        self._aside = self._aside or torch.cuda.Stream(self.device)
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        inputs = {name: values.to(self.device, copy=True) for name, values in batch.items()}
        self._warm_up(inputs, compute)
        graph = torch.cuda.CUDAGraph()
        with (
            as_it_was_on_failure(self.device, self._pool),
            # Other threads may use the GPU meanwhile: one that reads ahead, one that watches over the processes.
            torch.cuda.graph(graph, pool=self._pool, stream=self._aside, capture_error_mode="thread_local"),
            self.supervision(),
        ):
            losses, gradients = compute(inputs)
            kept = [self._keep(held, found) for held, found in zip(self.gradients, gradients, strict=True)]
        return _Captured(graph, inputs, Passed(losses, kept))

    def _keep(self, held: Gradients, found: Gradients) -> Gradients:
        """Copy to where the gradients of all graphs lie."""
        kept = {name: held[name] for name in found}
        if found:
            torch._foreach_copy_(list(kept.values()), list(found.values()))
        return kept

    def _warm_up(self, inputs: dict[str, Tensor], compute: Compute) -> None:
        here = torch.cuda.current_stream(self.device)
        with self._nothing_changed():
            self._aside.wait_stream(here)
            try:
                with torch.cuda.stream(self._aside):
                    for _ in range(WARM_UP):
                        gradients = compute(inputs).gradients
            finally:
                here.wait_stream(self._aside)
        self._make_room(gradients)

    def _make_room(self, gradients: Sequence[Gradients]) -> None:
        """For gradients that no graph had so far; laid out as optimisers want them, whatever the backward pass does."""
        self.gradients = self.gradients or [{} for _ in gradients]
        for held, found in zip(self.gradients, gradients, strict=True):
            for name in found.keys() - held.keys():
                held[name] = torch.empty_like(found[name], memory_format=torch.contiguous_format)

    @contextmanager
    def _nothing_changed(self) -> Iterator[None]:
        """Random numbers and what is left alone are afterwards what they were before."""
        random = torch.cuda.get_rng_state(self.device)
        before = [values.clone() for values in self.left_alone]
        try:
            yield
        finally:
            torch.cuda.set_rng_state(random, self.device)
            for values, value in zip(self.left_alone, before, strict=True):
                values.copy_(value)


def pinned(values: Tensor) -> Tensor:
    """Where a copy to the GPU need not be waited for."""
    return values if values.is_cuda else values.pin_memory()


class NoWaiting(TorchDispatchMode):
    """Refuses what reads values on the host. CUDA would too, but then the capture could not be ended in order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if waits(func, args):
            raise NotCapturable(f"{func} waits for the GPU")
        return func(*args, **(kwargs or {}))


aten: Any = torch.ops.aten
READS = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten._unique2)
INDEXES = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)


def waits(func: Any, args: Sequence[Any]) -> bool:
    """Whether an operation has to know values on the host: a number, or how many a mask picks."""
    operation = getattr(func, "overloadpacket", None)
    if operation in INDEXES:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return operation in READS
