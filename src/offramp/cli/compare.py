"""`offramp compare`: evaluations side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from offramp.cli.app import app

if TYPE_CHECKING:
    from offramp.evaluation.comparison import Comparison, Row

EXAMPLES = """
Examples:

  offramp compare runs/sst2-deebert runs/sst2-romebert

  offramp compare runs/a runs/b --names "two stages,self-distillation" --out figures

  offramp compare runs/mnli-a runs/mnli-b --split dev_mismatched --policy entropy

  offramp compare runs/rte-*-seed* --group-seeds

  offramp compare runs/rte-a runs/rte-b --reference runs/rte-static
"""
COLUMNS = {
    "full_depth": "full depth",
    "area": "area",
    "score_2x": "2×",
    "score_3x": "3×",
    "score_4x": "4×",
    "cost_at_minus_1": "cost −1 pt",
    "elue": "ELUE",
    "flops_ratio": "FLOPs",
}
"""The last one only where a model has gates."""


@app.command(epilog=EXAMPLES)
def compare(
    sources: Annotated[
        list[Path], typer.Argument(help="Model folders that were evaluated, evaluation folders or results.json files.")
    ],
    names: Annotated[str | None, typer.Option(help="What to call them, in order, with commas between.")] = None,
    split: Annotated[str | None, typer.Option(help="Only results on this split; otherwise all there are.")] = None,
    metric: Annotated[str | None, typer.Option(help="Judge by this metric instead of the task's own.")] = None,
    policy: Annotated[str | None, typer.Option(help="Compare under this policy instead of the best of all.")] = None,
    group_seeds: Annotated[
        bool,
        typer.Option("--group-seeds", help="Average over names that differ in their seed only (x-seed1, x-seed2)."),
    ] = False,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Reference of the ELUE score: a folder of evaluated models, such as ElasticBERT cut after 1 to 12 "
            "layers, or a JSON file of curves."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the table, the plots and report.html.")] = Path("comparison"),
) -> None:
    """Lay evaluations side by side: one table, one plot, one report."""
    from offramp.evaluation.comparison import compare as compare_results

    comparison = compare_results(
        sources,
        names=names.split(",") if names else None,
        split=split,
        metric=metric,
        policy=policy,
        group_seeds=group_seeds,
        reference=reference,
    )
    written = comparison.write(out)
    _show(comparison)
    typer.echo(f"{'report' if written[-1].suffix == '.html' else 'table'}  {written[-1]}")


def _show(comparison: Comparison) -> None:
    from offramp.evaluation.key_figures import metric_title

    console = Console()
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width to keep to
    for (task, split), rows in comparison.groups().items():
        console.print(_table(f"{task} ({split}), {rows[0].rows:,} rows, {metric_title(rows[0].metric)}", rows))
    if averages := comparison.averages():
        console.print(_table("average over tasks", averages))
    console.print(
        "2×, 3×, 4×: best score with at most 1/2, 1/3, 1/4 of the layers (layers, not time). "
        "cost −1 pt: share of layers within one point of the model's own full depth.",
        style="dim",
    )
    if missing := comparison.without_reference():
        console.print(f"ELUE: no reference curve for {', '.join(missing)} (--reference gives one).", style="dim")
    if any(one.gates for one in comparison.results):
        console.print(
            "FLOPs: what gates leave of a model's operations at full depth, in percent, by EBERT's count.", style="dim"
        )


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", overflow="fold", min_width=12)
    shown = [key for key in COLUMNS if any(row.numbers.get(key) is not None for row in rows)]
    for key in shown:
        table.add_column(COLUMNS[key], justify="right", no_wrap=True)
    for row in rows:
        runs = f" ({row.runs} runs)" if row.runs > 1 else ""
        table.add_row(escape(row.name + runs), *(_cell(row, key) for key in shown))
    return table


def _cell(row: Row, key: str) -> str:
    """Times 100, as papers print scores; the ELUE score is in points already."""
    number, deviation = row.numbers[key], row.deviations[key]
    scale = 1 if key == "elue" else 100
    if number is None:
        return "–"
    return f"{scale * number:.1f}" + ("" if deviation is None else f" ± {scale * deviation:.1f}")
