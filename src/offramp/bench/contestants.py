"""What is timed: everything that can answer rows, behind one interface. Padding and packing are not timed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offramp.bench.workload import by_length, cut
from offramp.engine import Engine
from offramp.engine.backends import make_runner
from offramp.engine.feeding import make_window, pack
from offramp.engine.host_runner import HostRunner
from offramp.engine.runner import Finished, Packed, Runner
from offramp.policies import Policy
from offramp.tasks.encoding import Row

Numbered = Sequence[tuple[int, Row]]
"""Rows and their numbers, by which scripted exits know them."""


class Said(NamedTuple):
    """What one row was answered."""

    logits: NDArray[np.float32]  # (C,), or (T, 2) for spans
    exit: int
    """0-based; -1 is the last."""


class Contestant(ABC):
    """Answers rows that were made ready for it."""

    name: str
    precision: str
    sorts = False
    """Takes its batches from rows sorted by length: less padding, where all rows are there to be sorted."""
    only_in_batches = False
    """Alone, a row is answered by another contestant in the same way."""

    @abstractmethod
    def prepare(self, rows: Numbered) -> Any:
        """A batch in the form `run` takes."""

    @abstractmethod
    def run(self, work: Any) -> object:
        """Answer a batch; its answers are on the host when this returns."""

    @abstractmethod
    def answers(self, work: Any) -> dict[int, Said]:
        """Answer a batch, and say what, by the rows' numbers."""

    def batches(self, rows: Numbered, size: int) -> list[Any]:
        """Rows in batches of one size."""
        return [self.prepare(batch) for batch in cut(by_length(rows) if self.sorts else rows, size)]

    @abstractmethod
    def stream(self, rows: Numbered) -> list[Any]:
        """Rows that are all there, in whatever batches suit best."""


class Offramp(Contestant):
    """Our engine, under a policy."""

    def __init__(self, name: str, engine: Engine, policy: Policy, runner: Runner) -> None:
        self.name = name
        self.precision = engine.setting.precision
        self.policy = policy
        self.runner = runner
        self.size = engine.size
        self.exit_layers: tuple[int, ...] = engine.model.exits.layers
        self.finished: list[list[Finished]] = []
        """Of every run since it was last emptied."""

    def prepare(self, rows: Numbered) -> list[Packed]:
        return [pack(rows)]

    def stream(self, rows: Numbered) -> list[list[Packed]]:
        tickets = np.array([ticket for ticket, _ in rows], np.int64)
        batches = make_window(0, [row for _, row in rows], list, self.size).batches
        return [[Packed(tickets[b.tickets], b.lengths, b.input_ids, b.token_type_ids) for b in batches]]

    def run(self, work: list[Packed]) -> list[Finished]:
        finished = [part for batch in work for part in self.runner.submit(batch)]
        finished += self.runner.flush()
        self.finished.append(finished)
        return finished

    def answers(self, work: list[Packed]) -> dict[int, Said]:
        return {
            ticket: Said(logits, exit)
            for part in self.run(work)
            for ticket, exit, logits in zip(part.tickets.tolist(), part.exits.tolist(), part.logits, strict=True)
        }

    def mean_layers(self) -> float:
        """Layers that rows went through since `finished` was last emptied."""
        exits = np.concatenate([part.exits for finished in self.finished for part in finished])
        return float(np.array(self.exit_layers)[exits].mean())


def own_pair(engine: Engine, full_depth: Policy) -> tuple[Offramp, Offramp]:
    """The engine at full depth and under its policy. On a CPU they share the layers, and so the memory."""
    if isinstance(engine.runner, HostRunner):
        other: Runner = type(engine.runner)(engine.model, full_depth, engine.runner.layers)
    else:
        other = make_runner(engine.model, full_depth, engine.setting)
    name = f"offramp {engine.setting.precision}"
    return Offramp(name, engine, full_depth, other), Offramp(f"{name}, exits", engine, engine.policy, engine.runner)
