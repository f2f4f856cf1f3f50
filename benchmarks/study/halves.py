"""Which rows are trained on, and which half of dev a row belongs to: the same for every method, on every machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.study.grid import StudyTask
from offramp.tasks import Examples, Task
from offramp.tasks import task as make_task

ROWS_SEED = 20
HALVES_SEED = 21

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TaskRows:
    """What a task is trained and judged on."""

    task: Task
    """With the chosen training rows, and no dev rows: training does not look at them."""
    train: Examples
    dev: Examples
    dev_split: str


def rows_of(task: StudyTask, data: Path) -> TaskRows:
    """Read a task, and choose its training rows."""
    whole = make_task(task.benchmark, data_dir=data / task.folder)
    train = some_of(whole.split("train"), task.train_rows)
    split = whole.dev_splits[0]
    dev = whole.split(split)
    return TaskRows(replace(whole, readers={"train": lambda: train}), train, dev, split)


def some_of(examples: Examples, wanted: int | None) -> Examples:
    """So many rows, drawn without looking at them, in the order of the file."""
    if wanted is None or wanted >= len(examples):
        return examples
    chosen = np.sort(np.random.default_rng(ROWS_SEED).permutation(len(examples))[:wanted])

    def pick(column: list | None) -> list | None:
        return None if column is None else [column[row] for row in chosen]

    return replace(examples, texts=pick(examples.texts), pairs=pick(examples.pairs), labels=pick(examples.labels))


def dev_halves(rows: int) -> tuple[Rows, Rows]:
    """The numbers of the rows in each half, ascending."""
    order = np.random.default_rng(HALVES_SEED).permutation(rows)
    return np.sort(order[: rows // 2]), np.sort(order[rows // 2 :])
