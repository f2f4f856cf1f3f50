"""The rows that exits are trained and calibrated on, with the model's own labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offramp.adding_exits.labels import adopt_names, as_written, given_labels, names_of
from offramp.calibration.losses import BY_METRIC, loss_of
from offramp.calibration.refusals import check_unseen
from offramp.calibration.run import KnownRows
from offramp.errors import OfframpError
from offramp.evaluation.run import default_splits
from offramp.models import MultiExitModel
from offramp.tasks import benchmark_task, own_task
from offramp.tasks.column_names import find_columns
from offramp.tasks.labels import label_order
from offramp.tasks.rows import read_rows
from offramp.tasks.sources import find_sources
from offramp.tasks.task import Task

HELD_OUT = 0.5
"""Share of the rows that are kept for calibration: heads learn from few rows, and a promise takes many."""


def rows_for(
    model: MultiExitModel,
    task: str | None = None,
    data_dir: str | Path | None = None,
    data: str | Path | None = None,
    *,
    dev: str | Path | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    labelled: bool = True,
    **own: Any,
) -> Task:
    """A benchmark's rows, or a user's own; whatever does not fit the model is refused."""
    if data is None and task is not None:
        if labels is not None:
            raise OfframpError("--labels goes with --data: what the labels of a benchmark mean is known")
        found = benchmark_task(task, data_dir)
        label_order(model, found)
        return _checked(found)
    if data is None:
        raise OfframpError("no rows: give a file (--data FILE), or name a benchmark (--task sst-2 --data-dir DIR)")
    if data_dir is not None:
        raise OfframpError("--data-dir is for --task, --data for own files: expected one of them")
    columns: dict[str, Any] = {"text": text, "text_pair": text_pair, "label": label}
    own = {"dev_share": HELD_OUT, **{name: value for name, value in own.items() if value is not None}}
    if model.outputs == 1:
        answers: dict[str, Any] = {"labels": (), "regression": True}
        labelled = False  # what is promised of numbers is how far they are from the model's own
    else:
        answers = _labels(model, data, dev, columns, labels, labelled)
    return _checked(own_task(data, dev=dev, name=task, labelled=labelled, **columns, **answers, **own))


def _labels(
    model: MultiExitModel,
    data: str | Path,
    dev: str | Path | None,
    columns: dict[str, Any],
    labels: Sequence[str] | None,
    labelled: bool,
) -> dict[str, Any]:
    """The model's labels, and how the data writes them."""
    tables = {split: table() for split, table in find_sources(data, dev, None).items() if split != "test"}
    first = next(iter(tables.values()))
    named = find_columns(first, columns["text"], columns["text_pair"], columns["label"], needs_label=False)
    if labelled and named.label is None:
        raise OfframpError(
            f"{first.source}: no column is named like a label: it has {', '.join(map(repr, first.columns))}; name the "
            "column with --label, or say --consistency, which needs none"
        )
    found = {label for table in tables.values() for label in read_rows(table, named).labels or ()}
    if not found:
        return {"labels": names_of(model)}
    if labels is None:
        written = as_written(names_of(model), found, first.source)
    else:
        written = given_labels(labels, names_of(model), found, first.source)
    names = adopt_names(model, written)
    return {"labels": names, "written": None if written == names else written}


def _checked(task: Task) -> Task:
    """With rows to learn from, and others to calibrate on."""
    if "train" not in task.splits:
        raise OfframpError(f"{task.name} has no training rows here (only {', '.join(task.splits)}): add a train file")
    train, held_out = task.split("train"), task.split(default_splits(task)[0])
    if not len(train):
        raise OfframpError(f"{train.source}: there are no rows to train on")
    check_unseen(train, held_out)
    return task


def promised(task: Task, consistency: bool, metric: str | None, tolerance: float | None) -> dict[str, Any]:
    """What is limited, as options of `calibrate`: the task's metric, or accuracy where that has no test; of numbers,
    how far they are from the model's own.
    """
    if task.kind == "regression":
        if tolerance is None:
            raise OfframpError(
                "the model answers with a number, which no exit gives to the last digit: say how far it may be off "
                "with --tolerance, such as --tolerance 0.1"
            )
        return {"consistency": True, "tolerance": tolerance}
    if tolerance is not None:
        raise OfframpError("--tolerance is for numbers, and the model answers with labels")
    if consistency:
        return {"consistency": True}
    name = metric or (task.metrics[0] if task.metrics[0] in BY_METRIC else "accuracy")
    loss_of(KnownRows.of(task, default_splits(task)[0]), name, False, None, "exact")  # refuses what has no test
    return {"metric": name}
