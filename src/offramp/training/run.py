"""`offramp.train`: a backbone, a task and a recipe to a model folder; and going on after a kill."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import PartialState
from accelerate.utils import set_seed
from rich.console import Console
from transformers import TrainerCallback, TrainingArguments

from offramp import __version__
from offramp.errors import Interrupted, OfframpError
from offramp.evaluation.trace import exit_logits
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.recipes import Phase, Recipe
from offramp.tasks.encoding import Row, TextEncoder, text_encoder
from offramp.tasks.labels import adopt_labels, in_model_order
from offramp.tasks.metrics import predictions_of, score
from offramp.tasks.task import Examples, Task
from offramp.training.folder import RunFolder
from offramp.training.phase_gradients import PhaseGradients
from offramp.training.plan import Plan
from offramp.training.progress import ShowProgress, StopGently, without_bars
from offramp.training.published import backbone_family, published_recipe, recipe_from_json, recipe_to_json
from offramp.training.trainer import PhaseTrainer


def train(
    backbone: str | Path,
    task: Task,
    out: str | Path,
    recipe: str | Recipe = "elasticbert",
    *,
    resume: bool = False,
    overwrite: bool = False,
    checkpoints: int = 2,
    report_to: Sequence[str] = (),
    quiet: bool = False,
    **settings: Any,
) -> MultiExitModel:
    """Train a multi-exit model and write it to the folder `out`.

    Args:
        backbone: folder or hub name, as for `offramp.load`.
        task: what `offramp.task` made.
        recipe: a recipe's name, with the settings its paper used for this task, or a recipe of your own making.
        resume: go on where a run in `out` with the same settings was killed.
        overwrite: replace the model in `out` once this one is trained.
        checkpoints: how many are kept while training; 0 for none, and no resuming.
        report_to: `tensorboard`, `wandb`, or any other reporter of the Hugging Face Trainer.
        settings: see `Plan`: seed, precision, accumulate, max_length, keep, eval_steps, save_steps, load.

    >>> task = offramp.task("sst-2", data_dir="glue/SST-2")
    >>> model = offramp.train("bert-base-uncased", task, "runs/sst2", "romebert")
    """
    if isinstance(recipe, str):
        recipe = published_recipe(recipe, task.name, backbone_family(backbone))
    plan = Plan(str(backbone), task.record, recipe_to_json(recipe), **settings)
    with without_bars():
        return run(plan, task, RunFolder(Path(out), checkpoints), resume, overwrite, report_to, quiet)


def run(
    plan: Plan,
    task: Task,
    folder: RunFolder,
    resume: bool = False,
    overwrite: bool = False,
    report_to: Sequence[str] = (),
    quiet: bool = False,
) -> MultiExitModel:
    """Carry out a plan."""
    process = process_state()
    console = Console(stderr=True, quiet=quiet or not process.is_main_process, soft_wrap=True, highlight=False)
    if resume and folder.is_finished:
        return load(folder.path)
    if process.is_main_process:
        folder.open(plan, resume, overwrite)
    process.wait_for_everyone()
    with warnings_of_one_process(process):
        material = prepare(plan, task)
    recipe = recipe_from_json(plan.recipe)
    recipe.prepare(material.model)
    for number, phase in enumerate(recipe.phases(material.model), start=1):
        PhaseRun(plan, material, folder, phase, number, tuple(report_to), console).carry_out()
        process.wait_for_everyone()
    if process.is_main_process:
        about = {"dev": material.dev.record() if material.dev else None, **about_this_run(process)}
        folder.finish(material.model, material.encoder, plan, task, about)
    process.wait_for_everyone()
    model = material.model
    model.eval()
    model.name_or_path = str(folder.path)
    return model


@contextmanager
def warnings_of_one_process(process: PartialState) -> Iterator[None]:
    """What every process finds is said once; and that exits are new goes without saying before training."""
    log = logging.getLogger("offramp")

    def wanted(record: logging.LogRecord) -> bool:
        return bool(process.is_main_process) and "are new: train them" not in record.getMessage()

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


@dataclass(frozen=True)
class Material:
    """What every phase works with."""

    model: MultiExitModel
    encoder: TextEncoder
    rows: list[Row]
    labels: list[int] | list[float]
    dev: DevScores | None


def prepare(plan: Plan, task: Task) -> Material:
    """Open the backbone, give it the task's exits, and read the rows."""
    if "train" not in task.splits:
        raise OfframpError(f"{task.name} has no training rows here (only {', '.join(task.splits)}): add a train file")
    set_seed(plan.seed)  # new exits are drawn from it
    model = load(plan.backbone, num_labels=len(task.labels) or 1, **plan.load).float()
    encoder = text_encoder(model, plan.max_length)
    model.config.max_text_tokens = encoder.max_length
    model.backbone.model.embeddings.requires_grad_(not plan.freeze_embeddings)
    adopt_labels(model, task)
    examples = task.split("train")
    dev = DevScores(model, encoder, task, task.split(task.dev_splits[0])) if task.dev_splits else None
    return Material(model, encoder, encoder.examples(examples), in_model_order(model, task, examples), dev)


class DevScores:
    """The dev score of every exit, whenever it is asked for."""

    def __init__(self, model: MultiExitModel, encoder: TextEncoder, task: Task, examples: Examples) -> None:
        self.model = model
        self.encoder = encoder
        self.metric = task.metrics[0]
        self.split = task.dev_splits[0]
        self.rows = encoder.examples(examples)
        self.labels = in_model_order(model, task, examples)

    def __call__(self) -> list[float]:
        logits = exit_logits(self.model, self.rows, self.encoder)  # (E, N, C)
        return [score(self.metric, predictions_of(of_exit), self.labels) for of_exit in logits]

    def record(self) -> dict[str, Any]:
        exits = dict(zip(map(str, self.model.exits.layers), self(), strict=True))
        return {"split": self.split, "rows": len(self.rows), "metric": self.metric, "exits": exits}


@dataclass(frozen=True)
class PhaseRun:
    """One phase of a run."""

    plan: Plan
    material: Material
    folder: RunFolder
    phase: Phase
    number: int
    report_to: tuple[str, ...]
    console: Console

    @property
    def name(self) -> str:
        return f"{self.number}-{self.phase.name}"

    @property
    def keeps_best(self) -> bool:
        return self.plan.keep == "best" and self.material.dev is not None

    def carry_out(self) -> None:
        """Train, or take the weights of this phase if an earlier run finished it."""
        model = self.material.model
        if self.folder.take_finished(self.name, model):
            return
        checkpoint = self.folder.last_checkpoint(self.name)
        if checkpoint is not None:
            self.console.print(f"{self.phase.name}: going on from step {checkpoint.name.split('-')[-1]}")
        stop = StopGently()
        callbacks = [ShowProgress(self.phase.name, self.console), stop]
        if self.keeps_best:
            callbacks.append(KeepBest(self))
        with PhaseGradients(model, self.phase) as gradients:
            trainer = PhaseTrainer(
                model,
                gradients,
                self.arguments(),
                self.material.rows,
                self.material.labels,
                self.material.encoder,
                self.material.dev,
                callbacks,
            )
            try:
                done = trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            finally:
                stop.restore()
        if stop.asked:
            raise Interrupted(self.folder.how_to_go_on(trainer.state.global_step, trainer.state.max_steps))
        if self.keeps_best:
            process_state().wait_for_everyone()
            self.folder.take_best(self.name, model)
        if trainer.is_world_process_zero():
            record = {"name": self.phase.name, "steps": trainer.state.max_steps, "history": history(trainer)}
            record["seconds"] = round(done.metrics["train_runtime"], 1)
            self.folder.phase_finished(self.name, model, record)

    def arguments(self) -> TrainingArguments:
        """The plan in the Trainer's words."""
        schedule, plan, keep = self.phase.schedule, self.plan, self.folder.checkpoints
        processes = process_state().num_processes
        precision = choose_precision(plan.precision)
        looks = self.material.dev is not None
        return TrainingArguments(
            output_dir=str(self.folder.phase(self.name)),
            num_train_epochs=schedule.epochs,
            per_device_train_batch_size=max(1, schedule.batch_size // (processes * plan.accumulate)),
            gradient_accumulation_steps=plan.accumulate,
            learning_rate=schedule.learning_rate,
            seed=plan.seed,
            use_cpu=not torch.accelerator.is_available(),
            bf16=precision == "bf16",
            fp16=precision == "fp16",
            eval_strategy=every(plan.eval_steps) if looks else "no",
            eval_steps=plan.eval_steps,
            save_strategy=every(plan.save_steps) if keep else "no",
            save_steps=plan.save_steps or 500,
            save_total_limit=keep or None,
            logging_steps=10,
            logging_nan_inf_filter=False,  # it would wait for the GPU at every step
            report_to=list(self.report_to) or "none",
            run_name=f"{self.folder.path.name}-{self.name}",
            disable_tqdm=True,
            log_level="error",
            remove_unused_columns=False,
            label_names=["labels"],
        )


def process_state() -> PartialState:
    """Which of the processes that torchrun started this is."""
    return PartialState(cpu=not torch.accelerator.is_available())


class KeepBest(TrainerCallback):
    """Keeps the weights of the best look at the dev set, whatever checkpoints there are."""

    def __init__(self, run: PhaseRun) -> None:
        self.run = run

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.run.folder.keep_if_best(self.run.name, self.run.material.model, metrics["eval_score"])


def every(steps: int | None) -> str:
    return "epoch" if steps is None else "steps"


def history(trainer: PhaseTrainer) -> list[dict[str, float]]:
    """Every look at the dev set: where, and each exit's score."""
    looks = [entry for entry in trainer.state.log_history if "eval_score" in entry]
    return [{key.removeprefix("eval_"): value for key, value in look.items()} for look in looks]


def choose_precision(wanted: str) -> str:
    """`auto` is bf16 on GPUs that have it, fp32 elsewhere."""
    on_gpu = torch.cuda.is_available()
    if wanted == "auto":
        return "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
    if wanted != "fp32" and not on_gpu:
        raise OfframpError(f"{wanted} training needs a GPU: leave precision at auto, or say fp32")
    return wanted


def about_this_run(process: PartialState) -> dict[str, Any]:
    """Machine and versions, for the record."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    versions = {"offramp": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {
        "processes": process.num_processes,
        "device": device,
        "versions": {**versions, "python": sys.version.split()[0]},
    }
