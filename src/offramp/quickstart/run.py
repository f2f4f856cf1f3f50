"""The stages of a quickstart, one after the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from offramp.bench.tables import counted
from offramp.calibration import calibrate
from offramp.calibration.certificate import Certificate
from offramp.errors import Interrupted, OfframpError, needs
from offramp.evaluation.report import write_report
from offramp.evaluation.results import Results
from offramp.evaluation.run import evaluate
from offramp.evaluation.trace_base import TraceBase
from offramp.evaluation.writing import write_results
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.quickstart.folder import QuickstartFolder
from offramp.quickstart.measuring import Speed, measure
from offramp.quickstart.parts import Parts, generated_parts, parts_of, sample
from offramp.quickstart.reviews import GRADES
from offramp.quickstart.wishes import Wishes
from offramp.stages import Stages
from offramp.tasks.encoding import text_encoder
from offramp.tasks.task import Task
from offramp.training.published import (
    backbone_config,
    backbone_family,
    benchmark_of,
    brings_exits,
    published_recipe,
    with_settings,
)
from offramp.training.run import train

RECIPE = "elasticbert"
BATCH_SIZE = 32
WARMUP = 0.1
RATE, WIDTH = 1e-4, 768
"""The peak of the learning rate for a backbone so wide; narrower ones take larger steps."""
POOLING = "mean"
"""What new exits see: a few steps do not teach the first layers to gather all in the first token."""
LOOKS_AT = 400
"""Dev rows whose scores are shown while it trains: a look at all of them takes seconds."""
MAX_LOSS = 0.01
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Outcome:
    """What a quickstart found."""

    folder: QuickstartFolder
    backbone: str
    parts: Parts
    results: Results
    """On rows that were neither trained nor calibrated on; its point is the calibrated policy."""
    speed: Speed
    uncertified: str | None
    """Why no policy was found that keeps the promise."""
    report: str
    """Where it is, or what is missing to make it."""
    layers_by_grade: dict[str, float] = field(default_factory=dict)
    """Mean layers that generated reviews went through, by grade."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of each stage."""

    def to_json(self) -> dict[str, Any]:
        point = self.results.point
        return {
            "backbone": self.backbone,
            "task": self.results.task,
            "rows": self.parts.rows,
            "metric": self.results.metric,
            "full_depth": self.results.full_depth.scores,
            "calibrated": None if point is None else asdict(point),
            "uncertified": self.uncertified,
            "speed": asdict(self.speed),
            "layers_by_grade": self.layers_by_grade,
            "seconds": self.seconds,
        }


def quickstart(out: str | Path, wishes: Wishes | None = None, task: Task | None = None, quiet: bool = False) -> Outcome:
    """Train, evaluate, calibrate and measure: on generated reviews, or on a task."""
    wishes = wishes or Wishes()
    folder = QuickstartFolder(Path(out))
    folder.check(wishes.backbone)
    stages = Stages(Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True))
    own = None if task is None else parts_of(task, wishes.rows, wishes.seed)  # wrong rows cost no earlier result
    with folder.claimed({"finished": False, **asdict(wishes)}):
        return carry_out(folder, wishes, own or generated_parts(folder.data, wishes.rows, wishes.seed), stages)


def carry_out(folder: QuickstartFolder, wishes: Wishes, parts: Parts, stages: Stages) -> Outcome:
    """One stage after the other."""
    model = train_model(folder, wishes, parts, stages)
    with stages("calibrate", f"on {parts.rows['dev']:,} rows"):
        certificate, uncertified = promise(model, parts.task)
        policy = certificate.policy if certificate else None
        if certificate:
            certificate.write(folder.model)
    with stages("evaluate", f"on {parts.rows['test']:,} rows that it has not seen"):
        place = folder.model / "evaluation" / "test"
        trace = evaluate(model, parts.task, split="test", out=place)
        results = trace.results(policy, name=f"{wishes.backbone} on {parts.task.name}")
        write_results(results, place, report=False)
        report = make_report(results, folder)
    with stages("measure", "full depth and exits, one text at a time"):
        encoder = text_encoder(model)
        speed = measure(model, policy, encoder.examples(parts.task.split("test")))
    grades = layers_by_grade(trace, policy, parts) if policy else {}
    outcome = Outcome(folder, wishes.backbone, parts, results, speed, uncertified, report, grades, stages.seconds)
    folder.write({"finished": True, **asdict(wishes), **outcome.to_json()})
    return outcome


def train_model(folder: QuickstartFolder, wishes: Wishes, parts: Parts, stages: Stages) -> MultiExitModel:
    rate = wishes.learning_rate or learning_rate(wishes.backbone)
    schedule = {"epochs": wishes.epochs, "learning_rate": rate, "batch_size": BATCH_SIZE, "warmup": WARMUP}
    family = backbone_family(wishes.backbone)
    recipe = with_settings(published_recipe(RECIPE, benchmark_of(parts.task), family), schedule, {})
    looks_at = sample(parts.task.split("dev"), LOOKS_AT, wishes.seed)
    task = replace(parts.task, readers={**parts.task.readers, "dev": lambda: looks_at})
    what = f"on {parts.rows['train']:,} rows, {counted(wishes.epochs, 'epoch')}"
    with stages("train", what, shown=False):  # it has a bar of its own
        try:
            return train(
                wishes.backbone,
                task,
                folder.model,
                recipe,
                checkpoints=0,
                load={} if brings_exits(wishes.backbone) else {"pooling": POOLING},
                quiet=stages.console.quiet,
                seed=wishes.seed,
            )
        except Interrupted as stopped:  # it knows no quickstart to go on with
            raise KeyboardInterrupt from stopped


def learning_rate(backbone: str) -> float:
    """The wider, the smaller; that of a wide one where the width is not known."""
    config = backbone_config(backbone)
    width = config.get("backbone_config", config).get("hidden_size", WIDTH)
    return RATE * WIDTH / int(width)


def promise(model: MultiExitModel, task: Task) -> tuple[Certificate | None, str | None]:
    """A policy that keeps the promise, with its record; or why the rows do not support one."""
    try:
        found = calibrate(model, task, max_loss=MAX_LOSS, confidence=CONFIDENCE, split="dev", dry_run=True)
        return found.certificate, None
    except OfframpError as error:
        return None, str(error)


def layers_by_grade(trace: TraceBase, policy: Policy, parts: Parts) -> dict[str, float]:
    """Mean layers that generated reviews went through; nothing for a user's own rows, which have no grades."""
    layers, grades = np.array(trace.exit_layers)[trace.exits(policy)], np.array(parts.grades)
    return {grade: float(layers[grades == grade].mean()) for grade in GRADES if grade in parts.grades}


def make_report(results: Results, folder: QuickstartFolder) -> str:
    try:
        needs("plotly.offline", "report")
    except OfframpError as error:
        return str(error)
    return str(write_report([results], folder.report))
