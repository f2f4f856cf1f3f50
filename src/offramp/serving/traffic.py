"""What a server has answered: by exit, and second by second over the last minute."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

SECONDS = 60


class Traffic:
    """Counts answers."""

    def __init__(self, depth: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.depth = depth
        self.clock = clock
        self.exits: Counter[int] = Counter()
        """By layer."""
        self._counts = [0] * SECONDS
        self._now = int(clock())

    def add(self, exit_layer: int) -> None:
        self.exits[exit_layer] += 1
        self._move_on()
        self._counts[self._now % SECONDS] += 1

    @property
    def answered(self) -> int:
        return self.exits.total()

    @property
    def mean_layers(self) -> float | None:
        answered = self.answered
        return sum(layer * count for layer, count in self.exits.items()) / answered if answered else None

    @property
    def saved(self) -> float | None:
        """The share of the layers that was not run."""
        mean = self.mean_layers
        return None if mean is None else 1 - mean / self.depth

    def per_second(self) -> list[int]:
        """Answers in each of the last seconds, the present one last."""
        self._move_on()
        start = (self._now + 1) % SECONDS
        return self._counts[start:] + self._counts[:start]

    def _move_on(self) -> None:
        now = int(self.clock())
        for second in range(max(self._now + 1, now - SECONDS + 1), now + 1):
            self._counts[second % SECONDS] = 0
        self._now = now
