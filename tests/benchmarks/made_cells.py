"""Cells of a study that nobody trained: traces drawn at random, better from layer to layer, judged as real ones are."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from benchmarks.study.grid import METHODS, TASKS, Backbone, Cell, Method, grid
from benchmarks.study.halves import TaskRows
from benchmarks.study.training import judged
from offramp.evaluation.flops import ModelShape
from offramp.evaluation.trace import Trace
from offramp.tasks import Examples, Task

DEPTH = 4
SMALL = Backbone(
    "small",
    "a small one (4 layers)",
    DEPTH,
    (2, 4),
    1e-3,
    "mean",
    ("deebert", "elasticbert", "ebert", "offramp"),
    (1, 2),
)
SOME_TASKS = (TASKS["sst-2"], TASKS["sts-b"])
SHAPE = ModelShape("bert", DEPTH, 16, 4, 24, 2, pooler=16)


def made_trace(rows: int = 60, exits: tuple[int, ...] = (1, 2, 3, 4), seed: int = 0, labels: int = 2) -> Trace:
    """Exits that are right more often, and surer of themselves, the later they are; 1 label: numbers."""
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, labels, rows) if labels > 1 else draw.normal(size=rows)
    right = np.eye(labels)[truth] if labels > 1 else truth[:, None]
    logits = np.stack([draw.normal(size=(rows, labels)) + layer * right for layer in exits]).astype(np.float32)
    return Trace(
        logits=logits,
        lengths=draw.integers(4, 30, rows),
        exit_layers=exits,
        shape=dataclasses.replace(SHAPE, depth=exits[-1], classes=labels),
        task="made-up",
        metrics=("accuracy",) if labels > 1 else ("spearman",),
        split="dev",
        labels=truth,
        label_names=("0", "1", "2")[:labels] if labels > 1 else (),
    )


def made_rows(labels: int = 2) -> TaskRows:
    kinds = [0, 1, 1] if labels > 1 else [0.5, 1.0, 2.0]
    train = Examples(["a", "b", "c"], None, kinds, "made up")
    task = Task("made-up", ("0", "1") if labels > 1 else (), ("accuracy",), False, {})
    return TaskRows(task, train, train, "dev")


def made_cell(cell: Cell, backbone: Backbone = SMALL, rows: int = 60) -> dict[str, Any]:
    """What a cell would store."""
    labels = 1 if cell.task == "sts-b" else 2
    method = Method("plain") if cell.layers else METHODS[cell.method]
    last = (cell.layers or backbone.depth,)
    exits = last if cell.layers or cell.method == "ebert" else tuple(range(1, backbone.depth + 1))
    # One truth for all cells of a task: static models are put one behind the other.
    trace = made_trace(rows, exits, seed=len(cell.task), labels=labels)
    draw = np.random.default_rng([cell.seed, *cell.method.encode()])
    noise = 0.3 * draw.normal(size=trace.logits.shape).astype(np.float32)
    trace = dataclasses.replace(trace, logits=trace.logits + noise)
    found = judged(trace, method, backbone, made_rows(labels), cell.layers)
    return {"format": 1, "cell": dataclasses.asdict(cell), **found}


@cache
def made_cells() -> dict[Cell, dict[str, Any]]:
    """All of a small study."""
    return {cell: made_cell(cell) for cell in grid([SMALL], SOME_TASKS)}
