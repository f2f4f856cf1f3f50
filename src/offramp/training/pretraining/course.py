"""The course of a run: which rows each step takes, read ahead in another thread; and the rows that score it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.rows import Layout, Rows, RowSource, Words

AHEAD = 4


class Course:
    """Short rows, and now and then long ones where the plan asks for them."""

    def __init__(self, tokens: NDArray[np.integer], words: Words, plan: PretrainingPlan, parts: int = 1) -> None:
        self.plan = plan
        self.short = RowSource(
            tokens, words, Layout(plan.length, plan.batch_size, plan.mask_rate, plan.order), plan.seed
        )
        self.long: RowSource | None = None
        if plan.long_length is not None:
            size = max(1, plan.batch_size * plan.length // plan.long_length)
            size = max(parts, size // parts * parts)
            layout = Layout(plan.long_length, size, plan.mask_rate, plan.order)
            self.long = RowSource(tokens, words, layout, plan.seed + 1)

    def rows(self, step: int) -> Rows:
        """The rows of step number `step` (0-based)."""
        before = self._long_before(step)
        if self.long is not None and self._long_before(step + 1) > before:
            return self.long.step(before)
        return self.short.step(step - before)

    def tokens_before(self, step: int) -> int:
        """Tokens seen in the steps before this one, special ones included."""
        long = self._long_before(step)
        tokens = (step - long) * self.plan.batch_size * self.plan.length
        if self.long is not None:
            tokens += long * self.long.layout.batch_size * self.long.layout.length
        return tokens

    def _long_before(self, step: int) -> int:
        """How many of the steps before this one took long rows."""
        return step // self.plan.long_every if self.plan.long_every else 0

    @contextmanager
    def read_ahead(self, first: int, end: int) -> Iterator[Iterator[Rows]]:
        """The rows of steps `first` to `end`, each made while earlier ones are learnt from."""
        ready: queue.Queue[Rows | BaseException] = queue.Queue(AHEAD)
        stopped = threading.Event()

        def make() -> None:
            try:
                for step in range(first, end):
                    self._put(ready, self.rows(step), stopped)
                    if stopped.is_set():
                        return
            except BaseException as error:  # to be raised where the rows are waited for
                self._put(ready, error, stopped)

        def take() -> Iterator[Rows]:
            for _ in range(first, end):
                item = ready.get()
                if isinstance(item, BaseException):
                    raise item
                yield item

        thread = threading.Thread(target=make, name="rows ahead", daemon=True)
        thread.start()
        try:
            yield take()
        finally:
            stopped.set()
            thread.join()

    @staticmethod
    def _put(ready: queue.Queue[Rows | BaseException], item: Rows | BaseException, stopped: threading.Event) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.2)
            except queue.Full:
                continue
        return None
