"""`offramp.add_exits`: a fine-tuned classifier and texts to a model folder with exits and a calibrated policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from offramp.adding_exits.classifier import open_classifier, whole_text_encoder
from offramp.adding_exits.labels import refuse_other_order
from offramp.adding_exits.rows import promised, rows_for
from offramp.calibration import calibrate
from offramp.calibration.calibrate import Calibration
from offramp.calibration.refusals import check_limits
from offramp.errors import OfframpError
from offramp.evaluation.results import Results
from offramp.evaluation.run import TRACE, default_splits, evaluate
from offramp.evaluation.trace_base import TraceBase
from offramp.evaluation.writing import write_results
from offramp.interop.conversion import check_destination
from offramp.models import MultiExitModel
from offramp.models.device import find_device
from offramp.recipes import Recipe
from offramp.recipes.frozen import Frozen
from offramp.shipped import refuse_to_change, resolve
from offramp.stages import Stages
from offramp.tasks.encoding import TextEncoder
from offramp.tasks.task import Task
from offramp.tasks.trained import RECORD
from offramp.training.about_run import about_this_run
from offramp.training.card import model_card
from offramp.training.folder import write_model
from offramp.training.head_training import train_heads
from offramp.training.plan import Plan, write_json
from offramp.training.pooled_states import PooledStates, logits_of, pooled_states
from offramp.training.published import recipe_to_json, with_settings
from offramp.whole_folder import whole_folder

MAX_LOSS, CONFIDENCE = 0.01, 0.95
STATES = "states"
"""The file in which states lie, while they are needed, that are too many for the memory."""


@dataclass(frozen=True)
class Added:
    """A classifier with exits, and what they give."""

    name: str
    """Of the classifier, as it was given."""
    folder: Path
    model: MultiExitModel
    results: Results
    """On the held-out rows; its point is the calibrated policy."""
    trained_on: int
    """Rows."""
    calibration: Calibration | None
    """None where nothing could be certified."""
    uncertified: str | None
    """Why not."""
    report: Path | None
    seconds: dict[str, float]
    """Of each stage."""

    def to_json(self) -> dict[str, Any]:
        found = self.calibration
        return {
            "model": self.name,
            "folder": str(self.folder),
            "trained_on": self.trained_on,
            "held_out": self.results.rows,
            "metrics": self.results.metrics,
            "full_depth": self.results.full_depth.scores,
            "exits": [asdict(one) for one in self.results.exits],
            "promise": None if found is None else str(found.promise),
            "policy": None if found is None else str(found.policy),
            "calibrated": None if self.results.point is None else asdict(self.results.point),
            "uncertified": self.uncertified,
            "seconds": self.seconds,
        }


def add_exits(
    model: str | Path,
    out: str | Path,
    task: str | None = None,
    *,
    max_loss: float = MAX_LOSS,
    confidence: float = CONFIDENCE,
    consistency: bool = False,
    metric: str | None = None,
    tolerance: float | None = None,
    exit_layers: Sequence[int] | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    seed: int = 42,
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    **rows: Any,
) -> Added:
    """Give a fine-tuned Hugging Face classifier exits, calibrate them, and write it all to the folder `out`.

    The classifier stays as it is, to the bit: at full depth the new folder answers as it does. The exits learn to say
    what it says, so labels are needed for scores and for a promise about them only.

    Args:
        model: folder or hub name of a BERT, RoBERTa or ALBERT for sequence classification (or of one number).
        task: a task of GLUE or ELUE, with `data_dir`; or `data`, a file of your own.
        max_loss, confidence: what may be lost against the classifier, and how sure to be of it, as for `calibrate`.
        consistency: limit how many answers differ from the classifier's instead; needs no labels.
        metric: whose loss is limited; default: the task's own.
        tolerance: how far a number may be from the classifier's.
        exit_layers: where to have exits; default: after every layer.
        epochs, learning_rate, batch_size: of the exits' training.
        max_length: tokens that texts are cut to; default: as many as the classifier takes.
        overwrite: replace a model folder that is there.
        quiet: show no progress.
        rows: `data_dir`; or `data`, `dev`, `text`, `text_pair`, `label`, `dev_share` and `split_seed` as for
            `offramp.task`, and `labels`: the data's labels in the order of the classifier's, where neither names nor
            numbers tell.

    >>> added = offramp.add_exits("models/sentiment", "runs/sentiment", data="reviews.csv", label="verdict")
    >>> added.calibration.policy, added.results.point.mean_layers
    """
    check_limits(max_loss, confidence, "fixed_sequence")
    destination = Path(out)
    check_destination(destination, overwrite)
    refuse_to_change(destination)
    if destination.resolve() == Path(resolve(model)).resolve():
        raise OfframpError(f"{destination} is the classifier itself, which is kept as it is: name another --out")
    schedule = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}
    recipe = with_settings(Frozen(), schedule, {})
    opened = open_classifier(model, exit_layers)
    chosen = rows_for(opened, task, labelled=not consistency, **rows)
    promise = promised(chosen, consistency, metric, tolerance)
    encoder = whole_text_encoder(opened, max_length)
    load = {name: getattr(opened.config, name) for name in ("exit_layers", "pooling")}
    plan = Plan(
        str(model), chosen.record, recipe_to_json(recipe), load=load, max_length=max_length, seed=seed, precision="fp32"
    )
    stages = Stages(Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True))
    with whole_folder(destination) as folder:
        train, held_out = chosen.split("train"), chosen.split(default_splits(chosen)[0])
        opened.to(find_device(device))  # type: ignore[arg-type]
        with stages("read", f"{len(train):,} rows by the classifier, once") as tell:
            states = pooled_states(opened, encoder.examples(train), encoder, folder / STATES, tell)
        if chosen.labels and train.labels is not None and rows.get("labels") is None:
            refuse_other_order(opened, chosen, train, states.last)
        phases = train_exits(opened, recipe, states, stages, seed)
        del states  # before others are written to the same file
        with stages("evaluate", f"every exit on {len(held_out):,} held-out rows") as tell:
            said = logits_of(opened, pooled_states(opened, encoder.examples(held_out), encoder, folder / STATES, tell))
        (folder / STATES).unlink(missing_ok=True)
        opened.to("cpu")  # type: ignore[arg-type]
        record = {**plan.to_json(), "max_length": encoder.max_length, "phases": phases, **about_this_run()}
        record["trained_on"] = train.digest()
        with stages("calibrate", "a policy on the same rows"):
            trace = evaluated(opened, chosen, encoder, folder, destination, record, said)
            wishes = {"max_loss": max_loss, "confidence": confidence, **promise}
            found, why_not = certified(opened, chosen, folder, trace, **wishes)
        with stages("report", "every exit and every policy"):
            results = trace.results(found.policy if found else None, name=destination.resolve().name)
            files = write_results(results, folder / "evaluation" / trace.split)
    opened.name_or_path = str(destination)
    reports = [destination / file.relative_to(folder) for file in files if file.suffix == ".html"]
    report = reports[0] if reports else None
    return Added(str(model), destination, opened, results, len(train), found, why_not, report, stages.seconds)


def train_exits(
    model: MultiExitModel, recipe: Recipe, states: PooledStates, stages: Stages, seed: int
) -> list[dict[str, Any]]:
    """Train the heads; the record of what was done."""
    [phase] = recipe.phases(model)
    with stages("train", f"{len(model.exits) - 1} exits, {phase.schedule.epochs} times over what was read") as tell:
        steps = train_heads(model, phase, states, seed, lambda done, steps, _: tell(done, steps))
    model.mark_trained(phase.trained_exits(model))
    return [{"name": phase.name, "steps": steps, "history": [], "seconds": sum(stages.seconds.values())}]


def evaluated(
    model: MultiExitModel,
    task: Task,
    encoder: TextEncoder,
    folder: Path,
    destination: Path,
    record: dict[str, Any],
    said: NDArray[np.float32],
) -> TraceBase:
    """What every exit says to the held-out rows; and the model folder, whose card says how good they are."""
    split = default_splits(task)[0]
    place = folder / "evaluation" / split
    trace = evaluate(model, task, split=split, out=place, said=said)
    trace = replace(trace, model=str(destination), recipe=Frozen.name)
    trace.save(place / TRACE)
    metric = trace.metrics[0]
    if trace.labelled:
        scores = {str(exit.layer): exit.scores[metric] for exit in trace.scores()}
        record["dev"] = {"split": split, "rows": len(trace), "metric": metric, "exits": scores}
    write_model(folder, model, encoder, model_card(model, destination.resolve().name, task, record))
    write_json(folder / RECORD, record)
    model.name_or_path = str(folder)
    return trace


def certified(
    model: MultiExitModel, task: Task, folder: Path, trace: TraceBase, **wishes: Any
) -> tuple[Calibration | None, str | None]:
    """A policy that keeps the promise, now in the folder; or why the rows do not support one."""
    try:
        place = folder / "evaluation" / trace.split
        return calibrate(
            model, task, split=trace.split, out=place, precision=None, **wishes
        ), None  # as it was evaluated
    except OfframpError as error:
        return None, str(error)
