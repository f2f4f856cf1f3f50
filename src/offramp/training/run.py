"""`offramp.train`: a backbone, a task and a recipe to a model folder; and going on after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors import SafetensorError

from offramp.errors import OfframpError, one_line
from offramp.interop import load
from offramp.interop.loading import expecting_new_exits, saying_only
from offramp.models import MultiExitModel
from offramp.recipes import Recipe, Schedule
from offramp.tasks.task import Task, refuse_no_task
from offramp.training.about_run import about_this_run
from offramp.training.folder import RunFolder
from offramp.training.material import prepare, said_of_labels_alike, said_of_long_texts, said_of_rare_labels
from offramp.training.phase_run import PhaseRun, choose_precision, process_state
from offramp.training.plan import Plan
from offramp.training.progress import without_bars
from offramp.training.published import (
    backbone_family,
    benchmark_of,
    looks_at_dev,
    published_exits,
    published_recipe,
    recipe_from_json,
    recipe_to_json,
    settings_of_backbone,
    with_settings,
)
from offramp.training.reporting import known_reporters, reporting


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
    run_name: str | None = None,
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
        run_name: name of the run for these reporters; default: the name of `out`.
        settings: fields of `Schedule`, such as epochs, learning_rate or max_steps, which replace the recipe's; and the
            other fields of `Plan`, such as seed, max_length, keep, early_stopping, precision or freeze_embeddings.

    >>> task = offramp.task("sst-2", data_dir="glue/SST-2")
    >>> model = offramp.train("bert-base-uncased", task, "runs/sst2", "romebert")
    """
    refuse_no_task(task)
    family = backbone_family(backbone)
    name = recipe if isinstance(recipe, str) else None
    if isinstance(recipe, str):
        recipe = settings_of_backbone(published_recipe(recipe, benchmark_of(task), family), backbone)
    numbers = {field.name: settings.pop(field.name, None) for field in fields(Schedule)}
    recipe = with_settings(recipe, numbers, {})
    settings |= looks_at_dev(name, family, task, settings.get("early_stopping"), settings.get("eval_steps"))
    settings["load"] = published_exits(recipe.full_name, backbone, settings.get("load"))
    plan = Plan(str(backbone), task.record, recipe_to_json(recipe), **settings)
    with without_bars():
        return run(plan, task, RunFolder(Path(out), checkpoints), resume, overwrite, report_to, quiet, run_name)


def run(
    plan: Plan,
    task: Task,
    folder: RunFolder,
    resume: bool = False,
    overwrite: bool = False,
    report_to: Sequence[str] = (),
    quiet: bool = False,
    run_name: str | None = None,
) -> MultiExitModel:
    """Carry out a plan."""
    process = process_state()
    console = Console(stderr=True, quiet=quiet or not process.is_main_process, soft_wrap=True, highlight=False)
    if resume and folder.is_finished:
        return load(folder.path)
    reporters = known_reporters(report_to)
    choose_precision(plan.precision)
    if process.is_main_process:
        folder.check(plan, resume, overwrite)
    process.wait_for_everyone()
    with saying_only(lambda _: process.is_main_process), expecting_new_exits():  # what every process finds, once
        material = prepare(plan, task)
    plan = replace(plan, trained_on=material.trained_on)
    if resume and process.is_main_process:
        folder.check_rows(material.trained_on, task)
    for said in (said_of_long_texts(material), said_of_rare_labels(task), said_of_labels_alike(task)):
        if said:
            console.print(said)
    recipe = recipe_from_json(plan.recipe)
    if not material.model.config.untrained_exits:
        material.model.stored_policy = None  # it was for exits that are trained anew
    recipe.prepare(material.model)
    phases = [
        PhaseRun(plan, material, folder, phase, number, console)
        for number, phase in enumerate(recipe.phases(material.model), start=1)
    ]
    for phase in phases:
        phase.check()
    if process.is_main_process and not resume:  # now that all that can be wrong with the input was looked at
        folder.begin(plan)
    process.wait_for_everyone()
    try:
        with reporting(reporters, run_name or folder.path.resolve().name) as reports:
            for phase in phases:
                phase.carry_out(reports)
                material.model.mark_trained(phase.phase.trained_exits(material.model))
                process.wait_for_everyone()
        if process.is_main_process:
            about = {"dev": material.dev.record() if material.dev else None, **about_this_run(process.num_processes)}
            folder.finish(material.model, material.encoder, plan, task, about)
    except SafetensorError as error:  # of weights that were to be written
        raise OfframpError(f"{folder.path} could not be written ({one_line(error)})") from error
    process.wait_for_everyone()
    model = material.model
    model.eval()
    model.name_or_path = str(folder.path)
    return model
