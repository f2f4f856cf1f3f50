"""The measurements as a table for the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from offramp.bench.results import BenchResults, Workload


def bench_table(results: BenchResults) -> Table:
    """A section for each batch size, the fastest in bold."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for column in ("median ms", "p95 ms", "texts/s", "of the fastest"):
        table.add_column(column, justify="right", no_wrap=True)
    for workload in results.workloads:
        table.add_section()
        table.add_row(Text(_heading(workload), style="italic"))
        for timing in workload.timings:
            ratio = workload.faster_than.get(timing.name, 1.0)
            table.add_row(
                f"  {timing.name}",
                milliseconds(timing.median_ms),
                milliseconds(timing.p95_ms),
                f"{timing.texts_per_second:,.{1 if timing.texts_per_second < 100 else 0}f}",
                f"{100 / ratio:.0f} %",
                style="bold" if timing.name == workload.fastest else "",
            )
    return table


def _heading(workload: Workload) -> str:
    return f"{workload.title} ({counted(workload.rows, 'row')}, {counted(workload.rounds, 'round')})"


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def milliseconds(number: float | None) -> str:
    """Three figures."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"
