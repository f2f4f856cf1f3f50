"""The stages of a command that does several things: what is being done now, and how long each took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[int, int], None]
"""Told how much of a stage is done, and of how much."""


class Stages:
    """Says what is being done, and notes how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, what: str, shown: bool = True) -> Iterator[Tell]:
        started = time.perf_counter()
        status = self.console.status(f"{name}: {what} …")

        def tell(done: int, total: int) -> None:
            status.update(f"{name}: {what}, {done:,} of {total:,} …")

        if shown:
            status.start()
        try:
            yield tell
        finally:
            status.stop()
        self.seconds[name] = round(time.perf_counter() - started, 1)
        self.console.print(f"{name:<10} {self.seconds[name]:5.1f} s   {what}", style="dim")
