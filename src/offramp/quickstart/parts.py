"""Rows to train on, rows to calibrate on, and rows to score on that were used for neither."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from offramp.errors import OfframpError
from offramp.evaluation.run import default_splits
from offramp.quickstart.reviews import make_reviews, write_reviews
from offramp.tasks import own_task
from offramp.tasks.dev_split import cut_dev
from offramp.tasks.task import Examples, Task

PARTS = ("train", "dev", "test")
"""To train on, to calibrate on, to score on."""


@dataclass(frozen=True)
class Parts:
    """A task with all three parts, and what is known of the rows to score on."""

    task: Task
    rows: dict[str, int]
    """Of each part."""
    grades: tuple[str, ...] = ()
    """Of the rows to score on, where they were generated."""

    @property
    def generated(self) -> bool:
        return bool(self.grades)


def generated_parts(folder: Path, rows: int, seed: int) -> Parts:
    """Reviews to train on, and half as many for each of the other parts; no review is in two of them."""
    half = max(1, rows // 2)
    reviews = make_reviews(rows + 2 * half, seed)
    parts = dict(zip(PARTS, (reviews[:rows], reviews[rows:-half], reviews[-half:]), strict=True))
    for name, some in parts.items():
        write_reviews(some, folder / f"{name}.csv")
    task = own_task(folder, text="review", label="verdict", name="generated reviews")
    return Parts(task, {name: len(some) for name, some in parts.items()}, tuple(one.grade for one in parts["test"]))


def parts_of(task: Task, rows: int, seed: int) -> Parts:
    """At most so many rows of each part. Without labelled test rows, the dev rows are cut in two."""
    if task.kind != "classification":
        raise OfframpError(
            f"quickstart is for labels, and {task.name} asks for {task.kind}: use offramp train, evaluate and calibrate"
        )
    dev: Examples = task.split(default_splits(task)[0])
    test: Examples | None = task.split("test") if "test" in task.splits else None
    if test is None or test.labels is None:
        labels = None if dev.labels is None else [str(label) for label in dev.labels]
        first, second = cut_dev(labels, len(dev), len(dev) // 2, seed)
        dev, test = taken(dev, first), taken(dev, second)
    found = {"train": task.split("train"), "dev": dev, "test": test}
    few = {name: sample(examples, rows, seed) for name, examples in found.items()}
    readers = {name: (lambda examples=examples: examples) for name, examples in few.items()}
    return Parts(replace(task, readers=readers), {name: len(examples) for name, examples in few.items()})


def sample(examples: Examples, rows: int, seed: int) -> Examples:
    if len(examples) <= rows:
        return examples
    return taken(examples, sorted(random.Random(seed).sample(range(len(examples)), rows)))


def taken(examples: Examples, numbers: Sequence[int]) -> Examples:
    """These rows alone."""
    pairs, labels = examples.pairs, examples.labels
    return replace(
        examples,
        texts=[examples.texts[number] for number in numbers],
        pairs=None if pairs is None else [pairs[number] for number in numbers],
        labels=None if labels is None else [labels[number] for number in numbers],
    )
