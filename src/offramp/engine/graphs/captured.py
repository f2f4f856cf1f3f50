"""CUDA graphs, by what they do: captured when first asked for, and those that often follow each other as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress

import torch

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
        if len(way) == 1 or self._taken[way] < OFTEN:
            for key, build in parts.items():
                self._replay(key, build)
        else:
            self._replay(way, lambda: [build() for build in parts.values()])

    def _replay(self, key: Hashable, build: Callable[[], object]) -> None:
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(build)
        graph.replay()

    def _capture(self, build: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        memory = self._memory[torch.cuda.current_stream()]
        graph.capture_begin(pool=memory, capture_error_mode="thread_local")
        try:
            build()
        except BaseException:
            with suppress(Exception):  # that the half of it cannot be a graph
                graph.capture_end()
            raise
        graph.capture_end()
        return graph
