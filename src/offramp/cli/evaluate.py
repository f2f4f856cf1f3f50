"""`offramp evaluate`: what every exit and every policy gives, from one pass over the data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.engine_options import (
    Backend,
    BatchSize,
    Device,
    Fresh,
    Limit,
    MaxLength,
    OriginalPadding,
    OtherPrecision,
    Threads,
)
from offramp.cli.evaluated_rows import rows_bar, rows_to_evaluate, splits_to_evaluate, trace_folder
from offramp.cli.own_policy import say_own_policy
from offramp.cli.task_options import Data, DataDir, LabelColumn, Metric, PairColumn, TaskName
from offramp.cli.task_options import TextColumn as TextOption
from offramp.errors import OfframpError
from offramp.shipped import results_home

if TYPE_CHECKING:
    from offramp.evaluation import Results, TraceBase
    from offramp.models import MultiExitModel
    from offramp.tasks import Task

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
        str | None,
        typer.Option(help="A point to look at, such as 'entropy(0.1) | window(8)'; default: the calibrated one."),
    ] = None,
    published: Annotated[bool, typer.Option("--published", help="Add the papers' own thresholds.")] = False,
    reference: Annotated[
        Path | None,
        typer.Option(
            help="Reference of the ELUE score: a folder of evaluated models, such as ElasticBERT cut after 1 to 12 "
            "layers, or a JSON file of curves."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: evaluation/SPLIT (or file-NAME) in the model folder.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Use this trace, and run no model.")] = None,
    fresh: Fresh = False,
    name: Annotated[str | None, typer.Option(help="What plots and comparisons call this model.")] = None,
    max_length: MaxLength = None,
    batch_size: BatchSize = None,
    device: Device = "auto",
    precision: OtherPrecision = None,
    backend: Backend = "auto",
    threads: Threads = None,
    limit: Limit = None,
    original_padding: OriginalPadding = False,
    legacy_npy: Annotated[
        Path | None,
        typer.Option(
            help="Also write DeeBERT's .npy files to this folder. Their seconds are measured: all rows one by one, "
            "under each of 13 thresholds."
        ),
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="No plots and no report.html.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, one line a split.")] = False,
) -> None:
    """Score every exit, sweep every policy, and find the best operating points: one pass, then no model is needed."""
    from offramp.engine.coverage import RunAs, cut_to
    from offramp.engine.policy_choice import own_policy
    from offramp.evaluation import TraceBase, reference_curve
    from offramp.evaluation.legacy_arrays import one_by_one, write_legacy_arrays
    from offramp.evaluation.run import place_for, rows_of
    from offramp.evaluation.trace import own_precision
    from offramp.evaluation.writing import write_results
    from offramp.interop import load
    from offramp.policies import policy_from_text

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
        if legacy_npy is not None:
            raise OfframpError("--legacy-npy goes with a model: its seconds are measured, and a trace runs no model")
        if unused := [option for option, value in given.items() if value is not None]:
            raise OfframpError(f"{unused[0]} goes with a model: a trace holds its rows, labels and metrics already")
        traces = {out or trace.parent: TraceBase.load(trace)}
        curve = reference_curve(next(iter(traces.values())).task, reference)
    else:
        opened = load(str(model))
        if original_padding:
            opened.pad_gates_to(cut_to(opened, max_length))
        home = results_home(str(model))
        own = own_policy(opened)
        if policy is None and own and own[1] is None:  # gates are as they are
            asked = own[0]
            own_kind = own_precision(opened, place_for(device, precision))
            runs_in = own_kind if precision in (None, "auto") else precision
            say_own_policy(opened, RunAs(runs_in, cut_to(opened, max_length)))
        elif policy is None and own:
            typer.echo(
                f"the calibrated point is not shown: it has the gates' threshold at {own[1]:g}, and this is the model "
                "with its own; offramp check runs it",
                err=True,
            )
        chosen = rows_to_evaluate(opened, task, data_dir, data, text, text_pair, label, metric)
        splits = splits_to_evaluate(chosen, split, data)
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
            rows = rows_of(opened, chosen, one.split, max_length, limit)
            typer.echo(f"measuring {len(rows):,} rows one by one, 13 times", err=True)
            run_as = {"device": device, "precision": precision or "fp32", "backend": backend, "threads": threads}
            files += write_legacy_arrays(one, place, one_by_one(opened, rows, **run_as))
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(results), ensure_ascii=False))
        else:
            show(results, files)


def _folders(home: Path, task: Task, splits: tuple[str, ...], out: Path | None, data: str | None) -> dict[str, Path]:
    """Where each split's results go."""
    if out is not None:
        return {split: out / split if len(splits) > 1 else out for split in splits}
    return {split: trace_folder(home, task, split, data) for split in splits}


def _trace(model: MultiExitModel, task: Task, split: str, folder: Path, fresh: bool, **settings: Any) -> TraceBase:
    from offramp.evaluation import evaluate

    with rows_bar(split) as on_rows:
        return evaluate(model, task, split=split, out=folder, fresh=fresh, on_rows=on_rows, **settings)


def show(results: Results, files: list[Path]) -> None:
    """Print what was found."""
    from offramp.evaluation import tables as shown

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
    if results.full_depth.scores and "reference" not in settings:
        console.print(f"no ELUE score: no reference curve for {results.task} (--reference gives one)", style="dim")
    tables = [shown.exits_table(results), shown.policies_table(results), shown.pareto_table(results)]
    if results.point:
        tables += [shown.point_table(results, results.point), shown.histogram_table(results.point)]
    if results.gates:
        tables.append(shown.gates_table(results.gates))
    for table in tables:
        console.print(table)
    for folder in dict.fromkeys(path.parent for path in files):
        names = ", ".join(path.name for path in files if path.parent == folder)
        console.print(f"{folder}: {names}", soft_wrap=True)
