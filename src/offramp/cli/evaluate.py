"""`offramp evaluate`: what every exit and every policy gives, from one pass over the data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from offramp.cli.app import app
from offramp.cli.engine_options import Backend, BatchSize, Device, Threads
from offramp.cli.task_options import (
    Data,
    DataDir,
    LabelColumn,
    Metric,
    PairColumn,
    TaskName,
    task_from_options,
)
from offramp.cli.task_options import TextColumn as TextOption
from offramp.errors import OfframpError
from offramp.evaluation.elue import reference_curve
from offramp.evaluation.legacy_arrays import write_legacy_arrays
from offramp.evaluation.results import Results
from offramp.evaluation.run import default_splits, evaluate
from offramp.evaluation.tables import (
    exits_table,
    gates_table,
    histogram_table,
    pareto_table,
    point_table,
    policies_table,
)
from offramp.evaluation.trace import OnRows
from offramp.evaluation.trace_base import TraceBase
from offramp.evaluation.writing import write_results
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.policies import policy_from_text
from offramp.tasks import Task, own_task, squad_task
from offramp.tasks import task as make_task
from offramp.tasks.labels import model_labels
from offramp.tasks.tables import read_table
from offramp.tasks.trained import trained_task, training_record

EXAMPLES = """
Examples:

  offramp evaluate runs/sst2

  offramp evaluate runs/sst2 --policy 'entropy(0.1) | window(8)'

  offramp evaluate models/deebert-mrpc --task mrpc --data-dir glue --published

  offramp evaluate runs/reviews --data new.csv --text review --label verdict --out new

  offramp evaluate runs/squad --data dev-v2.0.json --policy 'confidence(0.6)'

  offramp evaluate --trace runs/sst2/evaluation/dev/trace.npz --policy 'patience(3)' --no-report
"""


@app.command("evaluate", epilog=EXAMPLES)
def evaluate_command(
    model: Annotated[str | None, typer.Argument(help="Model folder, or anything offramp convert opens.")] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Data = None,
    text: TextOption = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    metric: Metric = None,
    split: Annotated[str | None, typer.Option(help="Default: dev, of MNLI both; of an own file, all of it.")] = None,
    policy: Annotated[
        str | None, typer.Option(help="One operating point to look at, such as 'entropy(0.1) | window(8)'.")
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Add the papers' own thresholds.")] = False,
    reference: Annotated[Path | None, typer.Option(help="Reference curve of the ELUE score, as JSON.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: evaluation/SPLIT (or file-NAME) in the model folder.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Use this trace, and run no model.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run the model even if a true trace is there.")] = False,
    name: Annotated[str | None, typer.Option(help="What plots and comparisons call this model.")] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Cut texts (or windows on them) to so many tokens; default: as trained.")
    ] = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    precision: Annotated[
        str | None, typer.Option(help="bf16, fp16 (GPU) or int8 (CPU) instead of the weights' own.")
    ] = None,
    backend: Backend = "auto",
    threads: Threads = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many rows, or questions.")] = None,
    legacy_npy: Annotated[Path | None, typer.Option(help="Also write DeeBERT's .npy files to this folder.")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="No plots and no report.html.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, one line a split.")] = False,
) -> None:
    """Score every exit, sweep every policy, and find the best operating points: one pass, then no model is needed."""
    asked = None if policy is None else policy_from_text(policy)
    if (model is None) == (trace is None):
        raise OfframpError("name a model to evaluate, or a trace of one (--trace FILE): one of the two")
    if trace is not None:
        given: dict[str, Any] = {
            "--task": task,
            "--data-dir": data_dir,
            "--data": data,
            "--text": text,
            "--text-pair": text_pair,
        }
        given |= {"--label": label, "--metric": metric, "--split": split, "--max-length": max_length, "--limit": limit}
        if unused := [option for option, value in given.items() if value is not None]:
            raise OfframpError(f"{unused[0]} goes with a model: a trace holds its rows, labels and metrics already")
        traces = {out or trace.parent: TraceBase.load(trace)}
        curve = reference_curve(next(iter(traces.values())).task, reference)
    else:
        opened = load(str(model))
        home = Path(str(model)) if Path(str(model)).is_dir() else Path(Path(str(model)).name)
        chosen = _task(opened, task, data_dir, data, text, text_pair, label, metric)
        splits = (split,) if split else default_splits(chosen) if data is None or chosen.dev_splits else chosen.splits
        if asked is not None:  # whatever is wrong with the wishes is said before the model runs
            asked.check(opened.objective.name, opened.exits.layers)
        curve = reference_curve(chosen.name, reference)
        settings: dict[str, Any] = {"max_length": max_length, "batch_size": batch_size, "precision": precision}
        settings |= {"limit": limit, "backend": backend, "threads": threads}
        folders = _folders(home, chosen, splits, out, data)
        traces = {
            folder: _trace(opened, chosen, one, folder, fresh, device=device, **settings)
            for one, folder in folders.items()
        }
    for folder, one in traces.items():
        results = one.results(asked, published, curve, name)
        files = write_results(results, folder, report=not no_report)
        if legacy_npy is not None:
            place = legacy_npy / one.split if len(traces) > 1 else legacy_npy
            files += write_legacy_arrays(one, place)
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(results), ensure_ascii=False))
        else:
            show(results, files)


def _task(
    model: MultiExitModel, task: str | None, data_dir: Path | None, data: str | None, *columns: str | None
) -> Task:
    """The task asked for, or the one the model was trained on. Every row of an own file is evaluated on."""
    text, text_pair, label, metric = columns
    options: dict[str, Any] = {"text": text, "text_pair": text_pair, "label": label, "metric": metric}
    if model.objective.name == "span" and data is not None and data_dir is None:
        return _questions_of(model, data, options)
    if data is None or task is not None or data_dir is not None:
        return task_from_options(task, data_dir, data, **options) or trained_task(model)
    labels = (
        () if model.objective.name == "regression" else model_labels(model) or tuple(map(str, range(model.outputs)))
    )
    record = training_record(model).get("task", {})
    given = {name: value for name, value in options.items() if value is not None}
    if known := _rows_trained_on(record, data, given):
        return known
    if not Path(data).is_file():
        return own_task(data, labels=labels, regression=not labels, **options)
    columns = read_table(data).columns
    trained = {name: record[name] for name in ("text", "text_pair", "label") if record.get(name) in columns}
    return own_task(test=data, labels=labels, regression=not labels, **{**options, **trained, **given})


def _questions_of(model: MultiExitModel, data: str, options: dict[str, Any]) -> Task:
    """A folder of SQuAD's, or all questions of a file in its format, as a task called as the file is."""
    if Path(data).is_dir():
        return squad_task(data=data, **options)
    _rows_trained_on(training_record(model).get("task", {}), data, {})
    return dataclasses.replace(squad_task(test=data, **options), name=Path(data).name.split(".json")[0])


def _rows_trained_on(record: dict[str, Any], data: str, given: dict[str, Any]) -> Task | None:
    """The training task, if the data are its rows: then only those cut off for dev may be scored."""
    if not record.get("fingerprint"):
        if Path(data).is_file() and str(Path(data).absolute()) == record.get("data"):
            raise OfframpError(f"{data} holds the rows the model was trained on: a score on them says nothing")
        return None
    try:
        task = make_task(**{**record, "data": data, **given})
    except OfframpError:  # other rows, or other columns: not those
        return None
    typer.echo(f"{data} holds the rows the model was trained on: only its dev rows are scored", err=True)
    return task


def _folders(home: Path, task: Task, splits: tuple[str, ...], out: Path | None, data: str | None) -> dict[str, Path]:
    """Where each split's results go."""
    if out is not None:
        return {split: out / split if len(splits) > 1 else out for split in splits}
    own_file = data is not None and Path(data).is_file() and not task.dev_splits
    return {split: home / "evaluation" / (f"file-{task.name}" if own_file else split) for split in splits}


def _trace(model: MultiExitModel, task: Task, split: str, folder: Path, fresh: bool, **settings: Any) -> TraceBase:
    with _progress(split) as on_rows:
        return evaluate(model, task, split=split, out=folder, fresh=fresh, on_rows=on_rows, **settings)


@contextmanager
def _progress(split: str) -> Iterator[OnRows]:
    """A bar on the terminal's error output while the model runs; a word where it need not run."""
    console = Console(stderr=True, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(split, visible=False)
        ran = []

        def on_rows(done: int, rows: int) -> None:
            ran.append(done)
            progress.update(bar, completed=done, total=rows, visible=True)

        yield on_rows
    if not ran:
        console.print(f"{split}: used the stored trace of these weights on these rows (--fresh runs the model again)")


def show(results: Results, files: list[Path]) -> None:
    """Print what was found."""
    console = Console(highlight=False)
    settings = results.settings
    rows = f"{results.rows:,} rows"
    if "windows" in settings:
        rows = f"{results.rows:,} questions in {settings['windows']:,} windows"
    console.print(
        f"[bold]{results.name}[/bold]: {results.task} {results.split}, {rows}, {results.depth} layers, "
        f"{len(results.exits)} exits; {settings['seconds']:.1f} s on {settings['device']} in {settings['precision']}",
        soft_wrap=True,
    )
    if not results.full_depth.scores:
        console.print(
            f"{settings['source']} has no labels: answers are compared with those of full depth", soft_wrap=True
        )
    tables = [exits_table(results), policies_table(results), pareto_table(results)]
    if results.point:
        tables += [point_table(results, results.point), histogram_table(results.point)]
    if results.gates:
        tables.append(gates_table(results.gates))
    for table in tables:
        console.print(table)
    for folder in dict.fromkeys(path.parent for path in files):
        names = ", ".join(path.name for path in files if path.parent == folder)
        console.print(f"{folder}: {names}", soft_wrap=True)
