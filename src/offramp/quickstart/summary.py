"""What a quickstart found, in a few lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from offramp.bench.tables import milliseconds
from offramp.evaluation.key_figures import main_metric, metric_title, value, written
from offramp.quickstart.run import CONFIDENCE, MAX_LOSS, Outcome

EXAMPLE = "The cast is good, but the story is dull."
LABELS = 12
"""Columns of the words at the left."""


def show(outcome: Outcome, console: Console) -> None:
    """Within 80 columns, but for commands and names of files: these stay whole, to be copied."""
    console.print(Text(headline(outcome), style="bold"))
    console.print(points(outcome))
    console.print(Text(verdict(outcome)))
    console.print(each_exit(outcome))
    if outcome.layers_by_grade:
        console.print(by_grade(outcome))
    for name, what in pointers(outcome):
        console.print(Text(f"{name:<8}{what}"), soft_wrap=True)


def headline(outcome: Outcome) -> str:
    rows, what = sum(outcome.parts.rows.values()), outcome.parts.task.name
    rows_of = what if outcome.parts.generated else f"rows of {what}"
    return f"{outcome.backbone}, {len(outcome.results.exits)} exits, {rows:,} {rows_of}"


def points(outcome: Outcome) -> Table:
    """Full depth, and the calibrated policy where there is one."""
    results, speed = outcome.results, outcome.speed
    metric, point = main_metric(results), results.point
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    table.add_column("")
    for column in (metric_title(metric), "layers", "latency"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")

    def row(name: str, score: float, layers: float, latency: float | None, note: str = "") -> None:
        table.add_row(name, written(score, metric), f"{layers:.1f}", f"{milliseconds(latency)} ms", note)

    row("full depth", value(results.full_depth, metric), results.depth, speed.full_depth)
    if point is not None:
        faster = f"{speed.speed_up:.1f} × faster, measured here" if speed.speed_up else ""
        row("calibrated", value(point, metric), point.mean_layers, speed.exits, faster)
    return table


def verdict(outcome: Outcome) -> str:
    if outcome.uncertified is not None:
        return f"not calibrated: {outcome.uncertified}"
    limit = f"{100 * MAX_LOSS:g} point" + ("" if MAX_LOSS == 0.01 else "s")
    return f"calibrated to lose at most {limit} against full depth, with {100 * CONFIDENCE:g} % confidence"


def each_exit(outcome: Outcome) -> Table:
    """What each exit would score if it answered everything."""
    metric = main_metric(outcome.results)
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(min_width=LABELS)
    table.add_row("each exit", " ".join(f"{100 * value(one, metric):.1f}" for one in outcome.results.exits))
    return table


def by_grade(outcome: Outcome) -> Table:
    """After how many layers reviews leave, from easy to hard."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column("grade", min_width=LABELS - 1)
    for grade in outcome.layers_by_grade:
        table.add_column(grade, justify="right", no_wrap=True)
    table.add_row("layers", *(f"{layers:.1f}" for layers in outcome.layers_by_grade.values()))
    return table


def pointers(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Where the report is, and what to do next."""
    model = shlex.quote(str(outcome.folder.model))
    yield "report", outcome.report
    if outcome.parts.generated:
        yield "try", f'offramp predict {model} "{EXAMPLE}"'
        yield "next", "offramp quickstart --data yours.csv --text TEXT --label LABEL --out runs/yours"
    else:
        yield "try", f'offramp predict {model} "TEXT"'
        yield "next", f"offramp evaluate {model}"
