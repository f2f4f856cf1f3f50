"""The course of a run: which rows each step takes, read ahead in another thread; and the rows that score it."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from offramp.training.pretraining.pairs import Pairs, PairSource
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.rows import Layout, RowSource, StepRows, Words

AHEAD = 4


class Course:
    """Short rows, and now and then long ones, or pairs, where the plan asks for them."""

    def __init__(
        self,
        tokens: NDArray[np.integer],
        words: Words,
        plan: PretrainingPlan,
        parts: int = 1,
        pairs: Pairs | None = None,
    ) -> None:
        self.plan = plan
        self.pairs = None if pairs is None else PairSource(pairs, plan.batch_size, plan.seed)
        self.short = RowSource(
            tokens, words, Layout(plan.length, plan.batch_size, plan.mask_rate, plan.order), plan.seed
        )
        self.long: RowSource | None = None
        if plan.long_length is not None:
            size = max(1, plan.batch_size * plan.length // plan.long_length)
            size = max(parts, size // parts * parts)
            layout = Layout(plan.long_length, size, plan.mask_rate, plan.order)
            self.long = RowSource(tokens, words, layout, plan.seed + 1)

    def rows(self, step: int) -> StepRows:
        """The rows of step number `step` (0-based)."""
        if self.pairs is not None and self._is_pairs(step):
            return self.pairs.step(self.turn(step))
        step = self.turn(step)
        before = self._long_before(step)
        if self.long is not None and self._long_before(step + 1) > before:
            return self.long.step(before)
        return self.short.step(step - before)

    def tokens_before(self, step: int) -> int:
        """Tokens of text seen in the steps before this one, special ones included; those of pairs are not counted."""
        step -= self._pairs_before(step)
        long = self._long_before(step)
        tokens = (step - long) * self.plan.batch_size * self.plan.length
        if self.long is not None:
            tokens += long * self.long.layout.batch_size * self.long.layout.length
        return tokens

    def turn(self, step: int) -> int:
        """How many steps of the same sort, with pairs or without, come before this one: groups of exits take turns in
        each sort.
        """
        pairs = self._pairs_before(step)
        return pairs if self._is_pairs(step) else step - pairs

    def _is_pairs(self, step: int) -> bool:
        return self._pairs_before(step + 1) > self._pairs_before(step)

    def _pairs_before(self, step: int) -> int:
        return math.floor(step * self.plan.pairs_share) if self.pairs is not None else 0

    def _long_before(self, step: int) -> int:
        """How many of the steps of text before this one took long rows."""
        return step // self.plan.long_every if self.plan.long_every else 0

    @contextmanager
    def read_ahead(self, first: int, end: int) -> Iterator[Iterator[StepRows]]:
        """The rows of steps `first` to `end`, each made while earlier ones are learnt from."""
        ready: queue.Queue[StepRows | BaseException] = queue.Queue(AHEAD)
        stopped = threading.Event()

        def make() -> None:
            try:
                for step in range(first, end):
                    self._put(ready, self.rows(step), stopped)
                    if stopped.is_set():
                        return
            except BaseException as error:  # to be raised where the rows are waited for
                self._put(ready, error, stopped)

        def take() -> Iterator[StepRows]:
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
    def _put(
        ready: queue.Queue[StepRows | BaseException], item: StepRows | BaseException, stopped: threading.Event
    ) -> None:
        while not stopped.is_set():
            try:
                return ready.put(item, timeout=0.2)
            except queue.Full:
                continue
        return None
