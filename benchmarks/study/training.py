"""One cell: train a model, ask all its exits about dev, and keep what the page needs."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers

import offramp
from benchmarks.study.answers import answers_of, as_task_numbers
from benchmarks.study.crossfit import COMMON_RULES, DIGITS, cross_fit, full_mflops, rules_for
from benchmarks.study.grid import BACKBONES, METHODS, TASKS, Backbone, Cell, Method, StudyTask, schedule_of
from benchmarks.study.halves import HALVES_SEED, ROWS_SEED, TaskRows, dev_halves, rows_of
from offramp.errors import OfframpError
from offramp.evaluation.flops import ModelShape
from offramp.evaluation.gate_counting import GateCounting
from offramp.evaluation.trace import Trace, exit_logits
from offramp.models import MultiExitModel
from offramp.recipes import Recipe
from offramp.shipped import is_shipped
from offramp.tasks.encoding import Row, TextEncoder, text_encoder
from offramp.tasks.labels import in_model_order, label_names, task_numbers
from offramp.tasks.metrics import score
from offramp.tasks.task import Examples
from offramp.training.published import backbone_family, published_recipe, with_settings
from offramp.training.run import train

DEV_ROWS = 256
"""In a batch of dev."""
MEMORY, ENOUGH = Path("/dev/shm"), 16 * 2**30
"""Where model folders are written, and deleted, if so many bytes are free there: no disk is waited for."""


@dataclass
class Workplace:
    """Where data and backbones lie, and what was read of them: a process runs many cells."""

    data: Path
    backbones: Path
    known_backbones: dict[str, Backbone] = field(default_factory=lambda: BACKBONES)
    known_tasks: dict[str, StudyTask] = field(default_factory=lambda: TASKS)
    read: dict[str, TaskRows] = field(default_factory=dict)
    encoded: dict[tuple[str, int, int], list[Row]] = field(default_factory=dict)

    def rows(self, task: str) -> TaskRows:
        if task not in self.read:
            self.read[task] = rows_of(self.known_tasks[task], self.data)
        return self.read[task]

    def backbone(self, name: str) -> str:
        """A folder of that name or, where there is none, the model in the box."""
        folder = self.backbones / name
        if not folder.is_dir() and not is_shipped(name):
            raise OfframpError(f"there is no backbone {folder}, and no {name} in the box: put its folder there")
        return str(folder) if folder.is_dir() else name

    @contextmanager
    def encoding_once(self, backbone: str) -> Iterator[None]:
        """Examples that were encoded for a backbone before are not encoded again: it would take longer than a short
        training does.
        """
        encode = TextEncoder.examples

        def kept(encoder: TextEncoder, examples: Examples) -> list[Row]:
            key = (backbone, id(examples), encoder.max_length)
            if key not in self.encoded:
                self.encoded[key] = encode(encoder, examples)
            return self.encoded[key]

        with patch.object(TextEncoder, "examples", kept):
            yield


def run_cell(cell: Cell, place: Workplace) -> dict[str, Any]:
    """Train and judge; what is returned is what is stored."""
    backbone, task = place.known_backbones[cell.backbone], place.known_tasks[cell.task]
    rows, folder = place.rows(cell.task), place.backbone(cell.backbone)
    method = Method("plain") if cell.layers else METHODS[cell.method]
    recipe = recipe_of(method, rows.task.name, folder, schedule_of(cell, backbone, task))
    load: dict[str, Any] = {"pooling": backbone.pooling}
    load |= {"layers": cell.layers, "exits": "last"} if cell.layers else {}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=scratch_home()) as scratch, place.encoding_once(cell.backbone):
        out = Path(scratch) / "model"
        model = train(folder, rows.task, out, recipe, seed=cell.seed, checkpoints=0, quiet=True, load=load)
        record = json.loads((out / "training.json").read_text(encoding="utf-8"))
        trained = time.perf_counter()
        trace = trace_of(model, rows)
    traced = time.perf_counter()
    if trace.shape.depth != (cell.layers or backbone.depth):
        raise OfframpError(f"{folder} has {trace.shape.depth} layers, the study says {backbone.depth}")
    found = {
        "cell": dataclasses.asdict(cell),
        "settings": settings_of(record, rows, folder),
        **judged(trace, method, backbone, rows, cell.layers),
    }
    seconds = {"train": trained - started, "trace": traced - trained, "judge": time.perf_counter() - traced}
    return {**found, "seconds": {name: round(value, 2) for name, value in seconds.items()}, "machine": machine()}


def scratch_home() -> Path | None:
    """None: where temporary files usually go."""
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH else None


def recipe_of(method: Method, task: str, backbone: str, schedule: dict[str, Any]) -> Recipe:
    recipe = published_recipe(method.recipe, task, backbone_family(backbone))
    return with_settings(recipe, schedule, method.settings)


@torch.no_grad()
def trace_of(model: MultiExitModel, rows: TaskRows) -> Trace:
    """Every exit's answer to every dev row, in single precision."""
    encoder = text_encoder(model)
    encoded = encoder.examples(rows.dev)
    gates = GateCounting(model, len(encoded)) if model.gates is not None and not model.gates.are_open else None
    logits = exit_logits(model, encoded, encoder, DEV_ROWS, gates=gates)
    if not np.isfinite(logits).all():
        raise OfframpError("training diverged: exits answer with numbers that are none")
    return Trace(
        **(gates.fields() if gates else {}),
        logits=logits,
        lengths=np.array([len(row) for row in encoded]),
        exit_layers=model.exits.layers,
        shape=ModelShape.of(model),
        task=rows.task.name,
        metrics=rows.task.metrics[:1],
        split=rows.dev_split,
        labels=np.asarray(in_model_order(model, rows.task, rows.dev)),
        label_names=label_names(model, rows.task),
        task_numbers=task_numbers(model, rows.task),
    )


def judged(trace: Trace, method: Method, backbone: Backbone, rows: TaskRows, layers: int | None) -> dict[str, Any]:
    """All numbers of a trace that the page is made of."""
    halves = [trace.take(half) for half in dev_halves(len(trace))]
    whole = [dataclasses.replace(half, shape=dataclasses.replace(half.shape, depth=backbone.depth)) for half in halves]
    found: dict[str, Any] = {
        "metric": trace.metrics[0],
        "depth": backbone.depth,
        "shape": dataclasses.asdict(trace.shape),
        "full_mflops": [round(full_mflops(half), 3) for half in whole],
        "free": [round(free_score(half, rows.train), DIGITS) for half in halves],
        "exits": exits_of(trace, halves),
    }
    if report := trace.gate_report():
        found["gates"] = {"ratio": round(report.ratio, DIGITS)}
        found["gates"] |= {"heads": short(report.heads), "neurons": short(report.neurons)}
    if layers is not None:
        return {**found, "answers": answers_of(trace, whole=layers == backbone.depth)}
    common = COMMON_RULES[trace.kind]
    own = rules_for(trace, (*method.own_rules, *common))
    curves = {"common": common, "own": own, **{rule: (rule,) for rule in own}}
    found["curves"] = {name: cross_fit(trace, rules, found["free"])._asdict() for name, rules in curves.items()}
    return found


def exits_of(trace: Trace, halves: list[Trace]) -> list[dict[str, Any]]:
    """Each exit answering for every row, on all of dev and on each half, alone: its own cost, and no other exit's."""
    each = [half.scores() for half in halves]
    return [
        {
            "layer": exit.layer,
            "score": round(exit.scores[trace.metrics[0]], DIGITS),
            "halves": short([half[number].scores[trace.metrics[0]] for half in each]),
            "mflops": [round(half[number].mflops, 3) for half in each],
            "agreement": round(exit.agreement, DIGITS),
        }
        for number, exit in enumerate(trace.scores())
    ]


def free_score(trace: Trace, train_rows: Examples) -> float:
    """Of the most frequent training label for everybody; in regression, of one number."""
    if trace.kind == "regression":
        return 0.0
    often = int(np.bincount(np.asarray(train_rows.labels)).argmax())
    return score(trace.metrics[0], np.full(len(trace), often), as_task_numbers(trace, trace.labels))


def short(numbers: list[float]) -> list[float]:
    return [round(float(number), DIGITS) for number in numbers]


def settings_of(record: dict[str, Any], rows: TaskRows, folder: str) -> dict[str, Any]:
    """What was trained, how, and on what."""
    return {
        "recipe": record["recipe"],
        "load": record["load"],
        "backbone": Path(folder).name,
        "max_length": record["max_length"],
        "phases": [{key: phase[key] for key in ("name", "steps", "seconds")} for phase in record["phases"]],
        "train": {"rows": len(rows.train), "seed": ROWS_SEED, "digest": rows.train.digest()},
        "dev": {"rows": len(rows.dev), "seed": HALVES_SEED, "digest": rows.dev.digest(), "split": rows.dev_split},
    }


def machine() -> dict[str, str]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    versions = {"offramp": offramp.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {"device": device, "training": "bf16" if torch.cuda.is_available() else "fp32", **versions}
