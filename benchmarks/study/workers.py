"""Processes that live for many cells: imports, data and encoded rows are paid for once."""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.study.grid import Cell

Run = Callable[[Cell], dict[str, Any]]
MakeRun = Callable[[], Run]
"""Called once in each process: what runs a cell there."""

GRACE = 15
"""Seconds that cells under way have to end in once time is up."""
ROOM = 1.3
"""A cell is begun if so many times its expected seconds are left."""
LAST_LINES = 3000
"""Characters of an error that are kept."""


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: what is to be stored, or why there is nothing."""

    cell: Cell
    found: dict[str, Any] | None
    error: str | None
    seconds: float


@dataclass
class Worker:
    """A process and what it is doing."""

    process: BaseProcess
    line: Connection
    cell: Cell | None = None
    since: float = 0.0

    def give(self, cell: Cell) -> None:
        self.cell, self.since = cell, time.monotonic()
        with suppress(OSError):  # it is no more, and the line will say so
            self.line.send(cell)

    @property
    def is_lost(self) -> bool:
        return self.cell is None and not self.process.is_alive()

    def outcome(self) -> Outcome:
        """Of the cell it was given; to be asked for once the process has spoken, or is no more."""
        assert self.cell is not None
        try:
            found, error = self.line.recv()
        except (EOFError, OSError):
            self.process.join()
            found, error = None, f"the process ended by itself (status {self.process.exitcode})"
        cell, self.cell = self.cell, None
        return Outcome(cell, found, error, time.monotonic() - self.since)


@dataclass
class Pace:
    """How many seconds a unit of expected work takes: what the cells done so far took."""

    work: float = 0.0
    seconds: float = 0.0

    def add(self, work: float, seconds: float) -> None:
        self.work, self.seconds = self.work + work, self.seconds + seconds

    def expected(self, work: float) -> float:
        return work * self.seconds / self.work if self.work else 0.0


def run_all(
    cells: Iterable[Cell],
    make_run: MakeRun,
    jobs: int,
    work: Callable[[Cell], float],
    on_outcome: Callable[[Outcome], None],
    seconds: float | None = None,
) -> None:
    """Run cells, the longest first. With `seconds`, cells that would not end in time are not begun; those that do not,
    for all that, are given up soon after, and nothing is said of them. Where processes end by themselves and no cell is
    done, no more are begun.
    """
    waiting = sorted(cells, key=work, reverse=True)
    ends = None if seconds is None else time.monotonic() + seconds
    pace, lost, workers = Pace(), 0, [start(make_run) for _ in range(min(jobs, len(waiting)))]
    try:
        while True:
            for worker in workers:
                if worker.cell is None and (cell := _next(waiting, work, pace, ends)) is not None:
                    waiting.remove(cell)
                    worker.give(cell)
            busy = [worker for worker in workers if worker.cell is not None]
            if not busy:
                return
            left = None if ends is None else ends + GRACE - time.monotonic()
            ready = wait([worker.line for worker in busy], None if left is None else max(0.0, left))
            if not ready and left is not None and left <= 0:
                return
            for worker in busy:
                if worker.line in ready:
                    outcome = worker.outcome()
                    if outcome.found is not None:
                        pace.add(work(outcome.cell), outcome.seconds)
                    on_outcome(outcome)
            lost += sum(worker.is_lost for worker in workers)
            if lost > jobs and not pace.work:
                return
            workers = [start(make_run) if worker.is_lost else worker for worker in workers]
    finally:
        stop(workers)


def _next(waiting: Sequence[Cell], work: Callable[[Cell], float], pace: Pace, ends: float | None) -> Cell | None:
    """The longest that will be done in time."""
    if ends is None:
        return waiting[0] if waiting else None
    left = ends - time.monotonic()
    return next((cell for cell in waiting if left > 0 and ROOM * pace.expected(work(cell)) <= left), None)


def start(make_run: MakeRun) -> Worker:
    context = get_context("spawn")  # CUDA does not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, make_run), daemon=True)
    process.start()
    there.close()
    return Worker(process, here)


def stop(workers: Sequence[Worker]) -> None:
    """End the processes: those that wait by hanging up, those that are at work by asking, once."""
    for worker in workers:
        worker.line.close()
        if worker.cell is not None:
            worker.process.terminate()
    ends = time.monotonic() + GRACE / 2
    for worker in workers:
        worker.process.join(max(0.0, ends - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()


def serve(line: Connection, make_run: MakeRun) -> None:
    """The life of a process: cells in, what they gave or what went wrong out, until nobody asks any more."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # processes enough
    run = make_run()
    while True:
        try:
            cell = line.recv()
        except EOFError:
            return
        try:
            answer: tuple[dict[str, Any] | None, str | None] = (run(cell), None)
        except Exception:  # whatever it was: the other cells are to be run
            answer = (None, traceback.format_exc()[-LAST_LINES:])
        gc.collect()
        try:
            line.send(answer)
        except OSError:  # given up in the meantime
            return
