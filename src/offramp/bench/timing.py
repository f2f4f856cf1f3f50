"""Paired times: in each round everybody answers the same rows once, and only times of one round are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

PAUSE = 0.06
"""Seconds of rest before each turn: a thread pool of ONNX Runtime spins for 40 ms after its work, on a core that the
next one needs."""
ENOUGH_FOR_P95 = 20

Batches = Sequence[Callable[[], object]]
Clock = Callable[[], float]


@dataclass
class Rounds:
    """Seconds of each batch in each round, by contestant. Whole rounds only."""

    rounds: list[dict[str, list[float]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rounds)

    def seconds(self, name: str) -> NDArray[np.float64]:
        """(rounds, batches)"""
        return np.array([one[name] for one in self.rounds])

    def totals(self, name: str) -> NDArray[np.float64]:
        """(rounds,)"""
        return np.array([sum(one[name]) for one in self.rounds])

    def ratio(self, slow: str, fast: str) -> float:
        """How many times faster `fast` is: the median over rounds of slow / fast."""
        return float(np.median(self.totals(slow) / self.totals(fast)))

    def latency(self, name: str) -> tuple[float, float | None]:
        """Median and 95th percentile of a batch's seconds; the latter where there are enough to tell."""
        seconds = self.seconds(name)
        p95 = float(np.percentile(seconds, 95)) if seconds.size >= ENOUGH_FOR_P95 else None
        return float(np.median(seconds)), p95

    def rate(self, name: str, rows: int) -> float:
        """Rows a second, by the median round."""
        return rows / float(np.median(self.totals(name)))

    def fastest(self, names: Sequence[str]) -> str:
        """Who leads everybody else, pair by pair."""
        return max(
            names, key=lambda name: min((self.ratio(other, name) for other in names if other != name), default=1)
        )


def interleave(
    contestants: Mapping[str, Batches],
    into: Rounds,
    seconds: float,
    most_rounds: int,
    *,
    least_rounds: int = 1,
    pause: float = PAUSE,
    clock: Clock = time.perf_counter,
    rest: Callable[[float], None] = time.sleep,
) -> None:
    """Add rounds for so many seconds; who begins changes from round to round. What is interrupted is no round."""
    names = list(contestants)
    started = clock()
    while len(into) < most_rounds and (len(into) < least_rounds or clock() - started < seconds):
        first = len(into) % len(names)
        times: dict[str, list[float]] = {}
        for name in names[first:] + names[:first]:
            rest(pause)
            times[name] = [seconds_of(batch, clock) for batch in contestants[name]]
        into.rounds.append(times)


def seconds_of(batch: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    begun = clock()
    batch()
    return clock() - begun
