"""CUDA graphs, by what they do: captured when first asked for, and those that often follow each other as one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

from offramp.broken_capture import as_it_was_on_failure
from offramp.errors import one_line

logger = logging.getLogger(__name__)

OFTEN = 3
"""So many times parts have to follow each other before they are captured as one: it takes as long as some batches."""

Build = Callable[[], None]
"""Puts kernels on the current stream."""


class Captured:
    """Graphs of what runs on these streams. What runs at the same time must not share memory: each has a pool."""

    def __init__(self, streams: Sequence[torch.cuda.Stream]) -> None:
        self._memory = {stream: torch.cuda.graph_pool_handle() for stream in streams}
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._parts: dict[Hashable, Build] | None = None
        """What is to be launched as one, in its order."""
        self._taken: Counter[Hashable] = Counter()
        self._broken: list[torch.cuda.CUDAGraph] = []
        """Kept: an allocator may still ask them whether they are captured."""

    def launch(self, key: Hashable, build: Build) -> None:
        """What `build` does, under its key."""
        if self._parts is None:
            self._replay(key, build)
        else:
            self._parts[key] = build

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """All that is launched inside, no key twice, goes to the device at the end: from graph to graph it rests."""
        parts: dict[Hashable, Build] = {}
        self._parts = parts
        try:
            yield
        finally:
            self._parts = None
        way = tuple(parts)
        self._taken[way] += 1
        if len(way) > 1 and self._taken[way] == OFTEN:
            self._capture_as_one(way, lambda: [build() for build in parts.values()])
        if way in self._graphs:
            self._graphs[way].replay()
            return
        for key, build in parts.items():
            self._replay(key, build)

    def _capture_as_one(self, way: Hashable, build: Callable[[], object]) -> None:
        """Tried once: its parts, which have graphs of their own by then, do as well."""
        try:
            self._graphs[way] = self._capture(build)
        except Exception as error:
            logger.warning(f"parts that follow each other stay CUDA graphs of their own ({one_line(error)})")

    def _replay(self, key: Hashable, build: Callable[[], object]) -> None:
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(build)
        graph.replay()

    def _capture(self, build: Callable[[], object]) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.current_stream()
        torch.cuda.current_blas_handle()  # each thread has its own, and none can be made while a graph is captured
        graph = torch.cuda.CUDAGraph()
        try:
            with as_it_was_on_failure(stream.device, self._memory[stream]):
                graph.capture_begin(pool=self._memory[stream], capture_error_mode="thread_local")
                try:
                    build()
                except BaseException:
                    with suppress(Exception):  # that the half of it cannot be a graph
                        graph.capture_end()
                    raise
                graph.capture_end()
        except BaseException:
            self._broken.append(graph)
            self._memory[stream] = torch.cuda.graph_pool_handle()  # of the old one torch may still believe in a capture
            raise
        return graph
