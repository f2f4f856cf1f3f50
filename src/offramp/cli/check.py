"""`offramp check`: whether what was promised still holds on new rows."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, BatchSize, Device, Fresh, Limit, MaxLength, OtherPrecision, Threads
from offramp.cli.evaluated_rows import rows_bar, rows_to_evaluate, splits_to_evaluate, trace_folder
from offramp.cli.task_options import DataDir, LabelColumn, PairColumn, TaskName, TextColumn
from offramp.errors import OfframpError
from offramp.shipped import is_shipped, results_home

if TYPE_CHECKING:
    from offramp.calibration.drift import Check

EXAMPLES = """
Examples:

  offramp check runs/reviews new.csv

  offramp check runs/reviews new.csv --text review --label verdict

  offramp check runs/sst2 --task sst-2 --data-dir glue --json
"""
STYLES = {"holds": "bold green", "broken": "bold red", "unknown": "bold yellow"}


@app.command("check", epilog=EXAMPLES)
def check_command(
    model: Annotated[Path, typer.Argument(help="Model folder that was calibrated.")],
    data: Annotated[
        str | None,
        typer.Argument(metavar="[NEW_DATA]", help="New rows: CSV, TSV, JSONL or Parquet, with labels or without."),
    ] = None,
    new_data: Annotated[str | None, typer.Option("--data", help="The same as NEW_DATA.")] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    split: Annotated[str | None, typer.Option(help="Of a task; default: dev. Of an own file: all of it.")] = None,
    fresh: Fresh = False,
    max_length: MaxLength = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    precision: OtherPrecision = None,
    backend: Backend = "auto",
    threads: Threads = None,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, in one line.")] = False,
) -> None:
    """Test whether the promise that a model was calibrated for still holds on new rows, and say what to do.

    Precision and length are those of the calibration, unless others are asked for.

    The exit status is 0 where it holds, 1 where it is broken, and 0, with a warning, where the rows cannot tell.
    """
    from offramp.calibration.checking import check
    from offramp.calibration.drift import BROKEN, UNKNOWN
    from offramp.interop import load

    if not is_shipped(model) and not model.is_dir():
        raise OfframpError(f"{model} is no folder: expected that of a calibrated model")
    if data is not None and new_data is not None:
        raise OfframpError(f"which rows, those of {data} or of {new_data}? Name one file")
    data = data or new_data
    if data is None and task is None and split is None:
        raise OfframpError("which rows? Name a file, as in offramp check MODEL new.csv, or a task (--task, --data-dir)")
    opened = load(model)
    chosen = rows_to_evaluate(opened, task, data_dir, data, text, text_pair, label)
    one = splits_to_evaluate(chosen, split, data)[0]
    options = {"data": data, "task": task, "data-dir": data_dir, "split": split}
    options |= {"text": text, "text-pair": text_pair, "label": label}
    given = [f"--{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    how: dict[str, Any] = {"max_length": max_length, "batch_size": batch_size, "device": device, "fresh": fresh}
    how |= {"precision": precision, "backend": backend, "threads": threads, "limit": limit}
    with rows_bar(one) as on_rows:
        found = check(
            opened,
            chosen,
            split=one,
            again=" ".join(["offramp calibrate", shlex.quote(str(model)), *given]),
            out=trace_folder(results_home(model), chosen, one, data),
            on_rows=on_rows,
            **how,
        )
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _show(found, model)
    if found.verdict == UNKNOWN:
        typer.echo("warning: these rows cannot tell whether the promise holds", err=True)
    raise typer.Exit(1 if found.verdict == BROKEN else 0)


def _show(found: Check, model: Path) -> None:
    from offramp.calibration.check_table import check_table

    console = Console(highlight=False)
    console.print(f"[bold]{escape(str(model))}[/bold]: {found.promise}", soft_wrap=True)
    if found.tested is None or found.tested.within is None:
        console.print("The rows have no labels: answers are compared with those of full depth.", soft_wrap=True)
    if found.run_otherwise is not None:
        console.print(f"These rows are run otherwise than was calibrated: {found.run_otherwise}.", soft_wrap=True)
    console.print(check_table(found))
    style = STYLES[found.verdict]
    console.print(f"The promise: [{style}]{found.verdict}[/]. Shift: {found.shift}.", soft_wrap=True)
    for line in found.advice:
        console.print(escape(line), soft_wrap=True)
