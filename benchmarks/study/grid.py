"""What the study trains: which methods on which tasks, from which backbones, with which seeds and schedules.

Nothing of offramp is imported here, so that this can be had in a moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

SEEDS = (1, 2, 3)
RATES = Path(__file__).with_name("rates.json")
"""Each method's learning rate, as a share of the plain model's: chosen by `benchmarks.study.probes`."""
PROBED = "offramp-mini"
"""The backbone whose rates hold where none were probed."""
SHARED_SETTINGS = {"warmup": 0.06, "weight_decay": 0.1}


@dataclass(frozen=True)
class StudyTask:
    """A task, the rows of it that are trained on, and for how long."""

    name: str
    title: str
    benchmark: str
    """As `offramp.task` knows it."""
    folder: str
    """Below the data folder."""
    epochs: int
    batch_size: int = 32
    train_rows: int | None = None
    """So many, drawn once and for all; None for all there are."""
    usual_rows: int = 0
    tokens: int = 30
    """About how many rows there are, and tokens in one: to begin with the longest runs."""


@dataclass(frozen=True)
class Method:
    """A recipe with its settings, and the rules its paper leaves by, besides those that every method is judged by."""

    recipe: str
    settings: dict[str, str] = field(default_factory=dict)
    own_rules: tuple[str, ...] = ()
    passes: float = 1.3
    """About how long training takes, in terms of plain fine-tuning of the same depth."""


@dataclass(frozen=True)
class Backbone:
    """An encoder, its learning rate, and what is trained from it."""

    name: str
    title: str
    depth: int
    static: tuple[int, ...]
    """Depths that are trained by themselves; none, and there is neither static curve nor cascade."""
    learning_rate: float
    pooling: str
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = SEEDS
    other_rates: dict[str, float] = field(default_factory=dict)
    """Tasks with another learning rate."""


TASKS = {
    task.name: task
    for task in (
        StudyTask("sst-2", "SST-2", "glue/sst-2", "glue/SST-2", 3, 64, 20_000, 20_000, 14),
        StudyTask("mrpc", "MRPC", "glue/mrpc", "glue/MRPC", 5, usual_rows=3_668, tokens=55),
        StudyTask("rte", "RTE", "glue/rte", "glue/RTE", 5, usual_rows=2_490, tokens=70),
        StudyTask("cola", "CoLA", "glue/cola", "glue/CoLA", 5, usual_rows=8_551, tokens=12),
        StudyTask("sts-b", "STS-B", "glue/sts-b", "glue/STS-B", 5, usual_rows=5_749, tokens=32),
        StudyTask("imdb", "IMDb", "elue/imdb", "elue/IMDb", 3, train_rows=5_000, usual_rows=5_000, tokens=124),
        StudyTask("mnli-small", "MNLI-small", "glue/mnli", "glue/MNLI-small", 3, usual_rows=15_891, tokens=42),
    )
}
METHODS = {
    "deebert": Method("deebert", own_rules=("entropy",), passes=1.5),
    "romebert-sd": Method("romebert", {"regularise": "false"}, ("entropy",)),
    "romebert": Method("romebert", own_rules=("entropy",), passes=2.0),
    "elasticbert": Method("elasticbert", own_rules=("entropy", "patience")),
    "elbert-equal": Method("elbert", {"weights": "equal"}, ("either",)),
    "elbert-dynamic": Method("elbert", {"weights": "dynamic"}, ("either",)),
    "ebert": Method("ebert", {"target": "0.6"}, passes=3.0),
    "ebert+elasticbert": Method("ebert+elasticbert", {"target": "0.6"}, ("entropy", "patience"), passes=3.8),
    "offramp": Method("offramp", own_rules=("entropy", "patience"), passes=2.8),
}
"""All but `plain`, which is trained at several depths. A phase has the schedule of the task, however many there are."""
ALL = tuple(METHODS)
BACKBONES = {
    one.name: one
    for one in (
        Backbone(
            "offramp-mini",
            "offramp-mini (12 layers, 256 wide)",
            12,
            (3, 6, 9, 12),
            2e-4,
            "mean",
            ALL,
            other_rates={"cola": 1e-4},  # at 2e-4 the plain model of full depth learns nothing
        ),
        Backbone(
            "minilm",
            "all-MiniLM-L6-v2 (6 layers, 384 wide)",
            6,
            (2, 3, 4, 6),
            1e-4,
            "mean",
            ALL,
            other_rates={"rte": 5e-5},
        ),
        Backbone(
            "offramp-mini-albert",
            "offramp-mini-albert (one layer, 12 times)",
            12,
            (),
            2e-4,
            "mean",
            ("elbert-dynamic", "romebert", "elasticbert", "offramp"),
            seeds=(1,),
        ),
    )
}


@dataclass(frozen=True, order=True)
class Cell:
    """One training and what came of it."""

    backbone: str
    task: str
    method: str
    """A key of `METHODS`, or `plain-6` for the first 6 layers."""
    seed: int

    @property
    def name(self) -> str:
        return f"{self.backbone}_{self.task}_{self.method}_seed{self.seed}"

    @property
    def layers(self) -> int | None:
        """Of a static model; None where the method has the whole backbone."""
        return int(self.method.removeprefix("plain-")) if self.method.startswith("plain-") else None


@dataclass(frozen=True, order=True)
class Probe(Cell):
    """A cell that tries a learning rate, with a seed that is not reported."""

    share: float = 1.0
    """Of the plain model's learning rate."""

    @property
    def name(self) -> str:
        return f"{super().name}_rate{self.share:g}"


def plain(layers: int) -> str:
    """What the static model of a depth is called as a method."""
    return f"plain-{layers}"


def grid(
    backbones: Iterable[Backbone] = tuple(BACKBONES.values()), tasks: Iterable[StudyTask] = tuple(TASKS.values())
) -> list[Cell]:
    """Every cell of the study."""
    tasks = list(tasks)
    return [
        Cell(backbone.name, task.name, method, seed)
        for backbone in backbones
        for task, method, seed in product(tasks, (*map(plain, backbone.static), *backbone.methods), backbone.seeds)
    ]


def only(cells: Sequence[Cell], wishes: Sequence[str]) -> list[Cell]:
    """The cells that `task=…`, `method=…`, `backbone=…`, `seed=…` leave; several of one key are alternatives."""
    asked: dict[str, set[str]] = {}
    for wish in wishes:
        key, equals, value = wish.partition("=")
        if not equals or key not in Cell.__dataclass_fields__:
            raise ValueError(f"--only {wish}: expected task=…, method=…, backbone=… or seed=…")
        known = sorted({str(getattr(cell, key)) for cell in cells})
        for one in value.split(","):
            if one not in known:
                raise ValueError(f"--only {wish}: there is no {key} {one!r}, only {', '.join(known)}")
            asked.setdefault(key, set()).add(one)
    return [cell for cell in cells if all(str(getattr(cell, key)) in values for key, values in asked.items())]


@cache
def chosen_rates(backbone: str) -> dict[str, float]:
    """By method; those that were not probed have the plain model's, and backbones that were not, `PROBED`'s."""
    rates = json.loads(RATES.read_text(encoding="utf-8")) if RATES.is_file() else {}
    found: dict[str, float] = rates.get(backbone, rates.get(PROBED, {})).get("chosen", {})
    return found


def schedule_of(cell: Cell, backbone: Backbone, task: StudyTask) -> dict[str, Any]:
    """Chosen for `plain` at full depth; the same for every method, but for its share of the learning rate."""
    share = cell.share if isinstance(cell, Probe) else chosen_rates(backbone.name).get(cell.method, 1.0)
    rate = share * backbone.other_rates.get(task.name, backbone.learning_rate)
    return {"learning_rate": rate, "epochs": task.epochs, "batch_size": task.batch_size, **SHARED_SETTINGS}


def work_of(cell: Cell, backbone: Backbone, task: StudyTask) -> float:
    """About how long a cell takes, in no unit: a step costs something whatever its rows, and more with its tokens."""
    steps = task.epochs * (task.train_rows or task.usual_rows) / task.batch_size
    depth = cell.layers or backbone.depth
    passes = 1.0 if cell.layers else METHODS[cell.method].passes
    return steps * passes * (1 + 0.25 * depth * (1 + task.tokens * task.batch_size / 2000))
