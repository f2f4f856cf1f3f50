"""The rows that `evaluate`, `calibrate` and `check` run a model on, as their options say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from offramp.cli.task_options import task_from_options
from offramp.errors import OfframpError

if TYPE_CHECKING:
    from offramp.evaluation.trace import OnRows
    from offramp.models import MultiExitModel
    from offramp.tasks import Task


def rows_to_evaluate(
    model: MultiExitModel,
    task: str | None = None,
    data_dir: Path | None = None,
    data: str | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    metric: str | None = None,
) -> Task:
    """The task asked for, or the one the model was trained on. Every row of an own file is evaluated on."""
    from offramp.tasks import own_task
    from offramp.tasks.labels import model_labels
    from offramp.tasks.tables import read_table
    from offramp.tasks.trained import trained_on, trained_task

    options: dict[str, Any] = {"text": text, "text_pair": text_pair, "label": label, "metric": metric}
    if model.objective.name == "span" and data is not None and data_dir is None:
        return _questions_of(model, data, options)
    if data is None or task is not None or data_dir is not None:
        return task_from_options(task, data_dir, data, **options) or trained_task(model)
    labels = (
        () if model.objective.name == "regression" else model_labels(model) or tuple(map(str, range(model.outputs)))
    )
    record = trained_on(model)
    given = {name: value for name, value in options.items() if value is not None}
    if known := _rows_trained_on(record, data, given):
        return known
    if not Path(data).is_file():
        return own_task(data, labels=labels, regression=not labels, **options)
    columns = read_table(data).columns
    trained = {name: record[name] for name in ("text", "text_pair", "label") if record.get(name) in columns}
    if record.get("labels") == list(labels):
        trained["written"] = record.get("written")
    return own_task(test=data, labels=labels, regression=not labels, **{**options, **trained, **given})


def _questions_of(model: MultiExitModel, data: str, options: dict[str, Any]) -> Task:
    """A folder of SQuAD's, or all questions of a file in its format, as a task called as the file is."""
    from offramp.tasks import squad_task
    from offramp.tasks.trained import trained_on

    if Path(data).is_dir():
        return squad_task(data=data, **options)
    _rows_trained_on(trained_on(model), data, {})
    return dataclasses.replace(squad_task(test=data, **options), name=Path(data).name.split(".json")[0])


def _rows_trained_on(record: dict[str, Any], data: str, given: dict[str, Any]) -> Task | None:
    """The training task, if the data are its rows: then only those cut off for dev may be scored."""
    if not record.get("fingerprint"):
        if Path(data).is_file() and str(Path(data).absolute()) == record.get("data"):
            raise OfframpError(f"{data} holds the rows the model was trained on: a score on them says nothing")
        return None
    from offramp.tasks import task as make_task

    try:
        task = make_task(**{**record, "data": data, **given})
    except OfframpError:  # other rows, or other columns: not those
        return None
    typer.echo(f"{data} holds the rows the model was trained on: only its dev rows are scored", err=True)
    return task


def splits_to_evaluate(task: Task, split: str | None, data: str | None) -> tuple[str, ...]:
    """The split asked for, or the dev splits; of an own file, all of it."""
    from offramp.evaluation.run import default_splits

    if split is not None:
        return (split,)
    return default_splits(task) if data is None or task.dev_splits else task.splits


def trace_folder(home: Path, task: Task, split: str, data: str | None) -> Path:
    """Where the trace of a split is kept: a file of the user's own does not take the place of a task's split."""
    own_file = data is not None and Path(data).is_file() and not task.dev_splits
    return home / "evaluation" / (f"file-{task.name}" if own_file else split)


@contextmanager
def rows_bar(split: str) -> Iterator[OnRows]:
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
