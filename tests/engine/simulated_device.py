"""A device that does one small thing after another, sooner or later: what the host sees of few rows in CUDA graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from offramp.engine.graphs.memory import Slot
from offramp.engine.graphs.sizes import fitting, token_sizes
from offramp.engine.graphs.stages import Move, stages_of
from offramp.policies import Entropy

MOST_ROWS = 1024


class SimulatedSlot(Slot):
    """Who waits for it lets the device work."""

    def __init__(self, labels: int, device: SimulatedDevice) -> None:
        super().__init__(labels, 1, MOST_ROWS, torch.device("cpu"))
        self._device = device

    def wait(self, tick: int) -> None:
        while not self.has(tick):
            self._device.work()  # raises where nothing comes that one could wait for
        self._device.run_ahead()


class SimulatedDevice:
    """Each row leaves by the exit that its script says, with logits that say so. Stands in for `Programs`.

    Writes come one by one in the order in which the kernels make them, and the host may see any number of them.
    """

    def __init__(self, script: np.ndarray, tokens: np.ndarray, stages: int, labels: int = 1, ahead: int = 0) -> None:
        self.script, self.tokens = script, tokens
        self.exit_layers = tuple(range(1, stages + 1))
        self.stages = stages_of(Entropy(0.1), self.exit_layers, record=False)
        self.token_sizes = token_sizes(16384)
        self.lanes = [SimpleNamespace(slot=SimulatedSlot(labels, self), tickets=np.empty(0, int)) for _ in range(3)]
        self.moves: list[tuple[int, int]] = []
        self.taken_in = 0
        self._to_do: deque[Callable[[], None]] = deque()
        self._sent = self._to_do
        """Where what is launched goes."""
        self._draw, self._ahead = np.random.default_rng(0), ahead

    def work(self) -> None:
        self._to_do.popleft()()

    def run_ahead(self) -> None:
        for _ in range(min(int(self._draw.integers(0, self._ahead + 1)), len(self._to_do))):
            self.work()

    def take_in(self, tickets: np.ndarray) -> int:
        """Returns the bucket."""
        self.taken_in += 1
        self._reached = self._asked = 0
        self._sent.append(lambda: self._put(0, tickets))
        return fitting(self.token_sizes, int(self.tokens[tickets].sum()))

    def link(self, stages: range, asks: range, size: int, rows: int, lane: int = 0) -> None:
        assert (stages.start, asks.start) == (self._reached, self._asked)  # nothing twice, nothing left out
        assert asks.stop <= stages.stop
        self._reached, self._asked = stages.stop, asks.stop
        self.lanes[lane].slot.expected += len(asks)
        for exit in asks:
            self._sent.extend(self._ask(exit, size, rows, lane))

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Nothing of it is done before all of it is launched."""
        self._sent = deque()
        yield
        self._to_do.extend(self._sent)
        self._sent = self._to_do

    def gather(self, move: Move, rows: int, lane: int, to: int) -> None:
        assert (move.stage, move.stage - 1) == (self._reached, self._asked)
        self.moves.append((lane, to))
        self._sent.append(lambda: self._put(to, self._fitting(lane, move.size)))

    def _fitting(self, lane: int, size: int) -> np.ndarray:
        here = self.lanes[lane]
        staying: np.ndarray = here.tickets[here.slot.words[: len(here.tickets)].numpy() < 0]
        return staying[: np.searchsorted(np.cumsum(self.tokens[staying]), size, side="right")]

    def _put(self, lane: int, tickets: np.ndarray) -> None:
        self.lanes[lane].tickets = tickets
        self.lanes[lane].slot.words[:MOST_ROWS] = -1

    def _ask(self, exit: int, size: int, rows: int, lane: int) -> list[Callable[[], None]]:
        here, slot = self.lanes[lane], self.lanes[lane].slot
        told = slot.is_told(rows)
        now = np.empty(0, int)

        def leave() -> None:
            nonlocal now
            assert size >= self.tokens[here.tickets].sum()
            now = np.flatnonzero(
                (self.script[here.tickets] <= exit) & (slot.exits(rows).numpy()[: len(here.tickets)] < 0)
            )
            slot.exits(rows)[now] = exit
            if told:
                slot.host_exits(rows)[now] = exit

        def answer(label: int) -> None:
            logits = torch.from_numpy(self.script[here.tickets[now]] + 100.0 * label).float()
            slot.logits(rows)[now, label] = logits
            if told:
                slot.host_logits(rows)[now, label] = logits

        def count() -> None:
            slot.ticks += 1
            slot.host_ticks.copy_(slot.ticks)

        def copy() -> None:
            used = rows * (1 + slot.labels)
            slot.host[:used] = slot.words[:used]

        answers = [partial(answer, label) for label in range(slot.labels)]
        return [leave, *answers, *([] if told else [copy]), count]
