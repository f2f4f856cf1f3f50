"""How far `offramp predict` has come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def rows_progress() -> Iterator[Callable[[int], None]]:
    """Rows and rows a second, on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.completed:,} rows"),
        BarColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("rows", total=None, speed="")
        started = time.monotonic()

        def count(rows: int) -> None:
            progress.update(bar, completed=rows, speed=f"{rows / (time.monotonic() - started + 1e-9):,.0f} rows/s")

        yield count
