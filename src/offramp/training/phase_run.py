"""One phase of a run: the Trainer it takes, what it keeps, and how it is stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from rich.console import Console
from transformers import TrainerCallback, TrainingArguments

from offramp.errors import Interrupted, OfframpError
from offramp.models import MultiExitModel
from offramp.recipes import Phase
from offramp.training.folder import RunFolder
from offramp.training.material import Material
from offramp.training.phase_gradients import PhaseGradients
from offramp.training.plan import Plan
from offramp.training.progress import ShowProgress, StopGently, in_any_process
from offramp.training.reporting import Reporting
from offramp.training.trainer import PhaseTrainer

TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
"""What the Trainer's reporter looks at."""


@dataclass(frozen=True)
class PhaseRun:
    """One phase of a run."""

    plan: Plan
    material: Material
    folder: RunFolder
    phase: Phase
    number: int
    console: Console

    @property
    def name(self) -> str:
        return f"{self.number}-{self.phase.name}"

    @property
    def keeps_best(self) -> bool:
        """Not while gates learn: the best score would be that of gates that keep more than they are to."""
        return self.plan.keep == "best" and self.material.dev is not None and not self.phase.trains_gates

    def carry_out(self, reports: Reporting) -> None:
        """Train, or take the weights of this phase if an earlier run finished it."""
        model = self.material.model
        if self.folder.take_finished(self.name, model):
            return
        checkpoint = self.folder.last_checkpoint(self.name)
        if checkpoint is not None:
            self.console.print(f"{self.phase.name}: going on from step {checkpoint.name.split('-')[-1]}")
        if self.plan.keep == "best" and self.phase.trains_gates:
            self.console.print(f"{self.phase.name}: the last weights are kept; the best score would be of open gates")
        stop = StopGently()
        callbacks = [ShowProgress(self.phase.name, self.console), stop]
        if self.keeps_best:
            callbacks.append(KeepBest(self))
        if reports.wandb is not None:
            reports.wandb.steps_before = sum(phase["steps"] for phase in self.folder.finished_phases())
            callbacks.append(reports.wandb)
        logs = self.folder.path / "logs" / self.name
        with PhaseGradients(model, self.phase) as gradients, tensorboard_files_in(logs):
            trainer = PhaseTrainer(
                model,
                gradients,
                self.arguments(reports),
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
            if trainer.is_world_process_zero() and not self.folder.checkpoints:
                self.folder.forget()
            raise Interrupted(self.folder.how_to_go_on(trainer.state.global_step, trainer.state.max_steps))
        if self.keeps_best:
            process_state().wait_for_everyone()
            self.folder.take_best(self.name, model)
        refuse_divergence(model, self.phase)
        if trainer.is_world_process_zero():
            record = {"name": self.phase.name, "steps": trainer.state.global_step, "history": history(trainer)}
            record["seconds"] = round(done.metrics["train_runtime"], 1)
            record["chosen_on_dev"] = self.keeps_best
            self.folder.phase_finished(self.name, model, record)

    def check(self) -> None:
        """Refuse what the Trainer cannot honour."""
        if any(group.keep_gradient for group in self.phase.constant_groups):
            raise OfframpError("keep_gradient is for parity with released code: only train_on_batches honours it")
        if self.phase.clip_sees_frozen and choose_precision(self.plan.precision) == "fp16":
            raise OfframpError("clip_sees_frozen does not go with fp16: use bf16 or fp32")
        schedule = self.phase.schedule
        steps = schedule.steps(-(-len(self.material.rows) // schedule.batch_size))
        if schedule.warmup_steps is not None and schedule.warmup_steps >= steps:
            raise OfframpError(
                f"warmup steps {schedule.warmup_steps}: phase {self.phase.name} has only {steps} steps, and the "
                "learning rate would never reach its peak: use fewer"
            )

    def arguments(self, reports: Reporting) -> TrainingArguments:
        """The plan in the Trainer's words."""
        schedule, plan, keep = self.phase.schedule, self.plan, self.folder.checkpoints
        processes = process_state().num_processes
        precision = choose_precision(plan.precision)
        looks = self.material.dev is not None
        return TrainingArguments(
            output_dir=str(self.folder.phase(self.name)),
            num_train_epochs=schedule.epochs,
            max_steps=schedule.max_steps or -1,
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
            report_to=list(reports.to) or "none",
            run_name=f"{reports.name}-{self.name}",
            disable_tqdm=True,
            log_level="error",
            remove_unused_columns=False,
            label_names=["labels"],
        )


def refuse_divergence(model: MultiExitModel, phase: Phase) -> None:
    """A model of NaNs is no result."""
    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise OfframpError(f"{phase.name}: training diverged, the weights are not numbers: lower the learning rate")


class KeepBest(TrainerCallback):
    """Keeps the weights of the best look at the dev set, whatever checkpoints there are.

    With early stopping it ends the phase once so many looks in a row were no better.
    """

    def __init__(self, run: PhaseRun) -> None:
        self.run = run
        self.is_over = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The checkpoint that a run goes on from may be that of its last step."""
        self.is_over = self.stops(args, state)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            self.run.folder.keep_if_best(self.run.name, self.run.material.model, metrics["eval_score"])
        self.is_over = self.stops(args, state)
        control.should_training_stop |= self.is_over

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.is_over:
            control.should_training_stop, control.should_evaluate = True, False

    on_epoch_end = on_step_end

    def stops(self, args: Any, state: Any) -> bool:
        patience = self.run.plan.early_stopping
        scores = [entry["eval_score"] for entry in state.log_history if "eval_score" in entry]
        worse = len(scores) - 1 - scores.index(max(scores)) if scores else 0
        return in_any_process(0 < patience <= worse, args.world_size, args.device)


@contextmanager
def tensorboard_files_in(folder: Path) -> Iterator[None]:
    """Where TensorBoard's files go, unless the environment says so: not to the checkpoints, which are dropped."""
    if TENSORBOARD in os.environ:
        yield
        return
    os.environ[TENSORBOARD] = str(folder)
    try:
        yield
    finally:
        del os.environ[TENSORBOARD]


def process_state() -> PartialState:
    """Which of the processes that torchrun started this is."""
    return PartialState(cpu=not torch.accelerator.is_available())


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
