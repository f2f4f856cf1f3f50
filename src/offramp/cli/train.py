"""`offramp train`: a backbone, a task and a recipe to a model folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.resuming import refuse_new_settings
from offramp.cli.task_options import (
    Data,
    DataDir,
    DevData,
    DevShare,
    LabelColumn,
    Metric,
    PairColumn,
    Regression,
    SplitSeed,
    TaskName,
    TestData,
    TextColumn,
    task_from_options,
)
from offramp.discovery import classes_below
from offramp.errors import OfframpError

EXAMPLES = """
Examples:

  offramp train --task sst-2 --data-dir glue --backbone bert-base-uncased --recipe romebert --out runs/sst2

  offramp train --data reviews.csv --text review --label verdict --backbone roberta-base --out runs/reviews

  offramp train --task mrpc --data-dir glue --backbone bert-base-uncased --recipe deebert --epochs 5 --out runs/mrpc

  offramp train --task rte --data-dir glue --backbone bert-base-uncased --recipe romebert --set gamma=0.5 --out runs/rte

  offramp train --data reviews.csv --backbone bert-base-uncased --recipe ebert --target-flops 0.6 --out runs/gated

  offramp train --task squad --data-dir squad --backbone bert-base-uncased --out runs/squad

  offramp train --resume --out runs/sst2

  torchrun --nproc-per-node 4 -m offramp train --task mnli --data-dir glue --backbone bert-base-uncased --out runs/mnli

Scripts and options of DeeBERT, RomeBERT, ElasticBERT, ELBERT and EBERT, and the commands that do the same:
docs/how-to/from-the-originals.md
"""

SCHEDULE = "How long and how fast (default: the paper's)"
MODEL = "The model"
RUN = "The run"
RECIPES = ", ".join(sorted(map(str.lower, classes_below("Recipe", Path(__file__).parents[1] / "recipes"))))


def _schedule(help: str) -> Any:
    return typer.Option(help=help, rich_help_panel=SCHEDULE)


def _model(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=MODEL)


def _run(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=RUN)


@app.command(epilog=EXAMPLES)
def train(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    backbone: Annotated[
        str | None, typer.Option(help="offramp-mini, or folder or hub name of a BERT, RoBERTa, ALBERT or ElasticBERT.")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(help=f"How to train: {RECIPES}; deebert+sd; or gates and exits, as ebert+elasticbert."),
    ] = "elasticbert",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the recipe, such as gamma=0.5."),
    ] = None,
    target_flops: Annotated[
        float | None, typer.Option(help="With ebert: the FLOPs to aim at, as a share of all, such as 0.6.")
    ] = None,
    gate_block: Annotated[
        int | None, typer.Option(help="With ebert: neurons that share a gate; 64 makes skipping fast.")
    ] = None,
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Data = None,
    dev: DevData = None,
    test: TestData = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    regression: Regression = None,
    metric: Metric = None,
    dev_share: DevShare = None,
    split_seed: SplitSeed = None,
    epochs: Annotated[int | None, _schedule("Times over the training rows, in each phase.")] = None,
    max_steps: Annotated[int | None, _schedule("Optimiser steps in each phase; overrides --epochs.")] = None,
    learning_rate: Annotated[float | None, _schedule("Peak learning rate.")] = None,
    batch_size: Annotated[int | None, _schedule("Rows a step, over all processes and micro-batches.")] = None,
    warmup: Annotated[float | None, _schedule("Share of the steps in which the learning rate rises.")] = None,
    warmup_steps: Annotated[
        int | None, _schedule("Steps in which the learning rate rises; overrides --warmup.")
    ] = None,
    weight_decay: Annotated[float | None, _schedule("Weight decay (matrices only).")] = None,
    adam_epsilon: Annotated[float | None, _schedule("Epsilon of AdamW.")] = None,
    clip: Annotated[float | None, _schedule("Largest norm of the gradient; 0: do not clip.")] = None,
    layers: Annotated[int | None, _model("Keep only the first so many layers of the backbone.")] = None,
    exit_layers: Annotated[str | None, _model("Layers to have exits, such as 3,6,12; default: all.")] = None,
    pooling: Annotated[
        str | None,
        _model("What new exits see: first, mean, max, or a sum (first+mean); default: the backbone's."),
    ] = None,
    shared_head: Annotated[
        bool | None, _model("One head for all exits, as ELBERT has it on ALBERT.", "--shared-head/--own-heads")
    ] = None,
    classifier_size: Annotated[
        int | None, _model("Width of a hidden layer in the classifiers of new exits (ELBERT's use_fc2); default: none.")
    ] = None,
    max_length: Annotated[int | None, _model("Cut texts to so many tokens (128), or into such windows (384).")] = None,
    stride: Annotated[
        int | None, _model("With questions: context tokens from one window to the next (128); kept in the model.")
    ] = None,
    seed: Annotated[int, _run("Of new weights, the order of the rows, and dropout.")] = 42,
    precision: Annotated[str, _run("auto (bf16 on GPUs that have it), fp32, bf16 or fp16.")] = "auto",
    accumulate: Annotated[int, _run("Micro-batches a step: less memory, the same result.")] = 1,
    keep: Annotated[
        str, _run("The last weights, as the papers do, or the best on dev (of gates always the last).")
    ] = "last",
    freeze_embeddings: Annotated[
        bool, _run("Leave the embeddings as they were pre-trained.", "--freeze-embeddings")
    ] = False,
    eval_steps: Annotated[int | None, _run("Steps between looks at the dev set; default: each epoch.")] = None,
    early_stopping: Annotated[
        int | None,
        _run("Stop a phase after this many looks at the dev set without a better score, keep the best; 0: never."),
    ] = None,
    save_steps: Annotated[int | None, _run("Steps between checkpoints; default: each epoch.")] = None,
    checkpoints: Annotated[
        int, typer.Option(min=0, help="How many to keep while training; 0: none.", rich_help_panel=RUN)
    ] = 2,
    report_to: Annotated[list[str] | None, _run("tensorboard, wandb …; can be given more than once.")] = None,
    run_name: Annotated[
        str | None, _run("Name of the run for these reporters; default: the name of the --out folder.")
    ] = None,
    resume: Annotated[bool, _run("Go on with the run in --out.", "--resume")] = False,
    overwrite: Annotated[bool, _run("Replace the model in --out once this one is trained.", "--overwrite")] = False,
    quiet: Annotated[bool, _run("Show no progress.", "--quiet")] = False,
) -> None:
    """Train a multi-exit model: any recipe, any backbone, any task. Ctrl-C stops it so that --resume can go on."""
    from offramp.tasks import task as make_task
    from offramp.training.folder import RunFolder
    from offramp.training.plan import Plan, read_plan
    from offramp.training.published import (
        backbone_family,
        benchmark_of,
        looks_at_dev,
        published_exits,
        published_recipe,
        recipe_to_json,
        settings_of_backbone,
        with_settings,
    )

    own: dict[str, Any] = {
        "dev": dev,
        "test": test,
        "text": text,
        "text_pair": text_pair,
        "label": label,
        "regression": regression,
    }
    own |= {"metric": metric, "dev_share": dev_share, "split_seed": split_seed}
    folder = RunFolder(out, checkpoints)
    if resume and folder.is_finished:
        typer.echo(f"{out}: this training is finished", err=True)
        return
    chosen = task_from_options(task, data_dir, data, **own)
    if resume and chosen is None and backbone is None:
        refuse_new_settings(context, {"checkpoints", "report_to", "run_name"})
        plan = read_plan(folder.plan)
        chosen = make_task(**plan.task)
    elif chosen is None or backbone is None:
        raise OfframpError("name a backbone (--backbone) and a task (--task with --data-dir, or --data)")
    else:
        schedule: dict[str, float | None] = {
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "warmup": warmup,
            "weight_decay": weight_decay,
            "clip": clip,
        }
        schedule |= {"max_steps": max_steps, "warmup_steps": warmup_steps, "adam_epsilon": adam_epsilon}
        family = backbone_family(backbone)
        method = settings_of_backbone(published_recipe(recipe, benchmark_of(chosen), family), backbone)
        if not recipe.startswith("ebert") and (target_flops is not None or gate_block is not None):
            raise OfframpError("--target-flops and --gate-block go with gates: --recipe ebert, or ebert+elasticbert")
        method = with_settings(method, schedule, _settings(set_ or [], target_flops, gate_block))
        plan = Plan(
            backbone,
            chosen.record,
            recipe_to_json(method),
            load=published_exits(
                method.full_name, backbone, _load_options(layers, exit_layers, pooling, shared_head, classifier_size)
            ),
            max_length=max_length,
            stride=stride,
            seed=seed,
            precision=precision,  # type: ignore[arg-type]
            accumulate=accumulate,
            keep=keep,  # type: ignore[arg-type]
            freeze_embeddings=freeze_embeddings,
            save_steps=save_steps,
            **looks_at_dev(recipe, family, chosen, early_stopping, eval_steps),
        )
    from offramp.training.phase_run import process_state
    from offramp.training.run import run  # the Trainer takes seconds to import: not before mistakes are found

    run(plan, chosen, folder, resume, overwrite, report_to or (), quiet, run_name)
    process = process_state()
    shown = process.is_main_process and not quiet
    process.destroy_process_group()  # or the first process to end takes the others with it
    if shown:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(f"{out}: trained.{_reached(out)} Next: offramp evaluate {shlex.quote(str(out))}")


def _reached(out: Path) -> str:
    """How near the gates came to their target."""
    from offramp.interop.checkpoint import read_json
    from offramp.tasks.trained import RECORD

    record = read_json(out / RECORD)
    flops = (record.get("dev") or {}).get("flops")
    if flops is None:
        return ""
    target = record["recipe"].get("target")
    return f" Gates keep {flops:.2f} of the FLOPs on dev{'' if target is None else f' (target {target:g})'}."


def _settings(given: list[str], target_flops: float | None, gate_block: int | None) -> dict[str, str]:
    of_gates = {"target": target_flops, "block": gate_block}
    settings = {name: str(value) for name, value in of_gates.items() if value is not None}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OfframpError(f"--set {text}: write NAME=VALUE, such as --set gamma=0.5")
        if settings.get(name, value) != value:
            raise OfframpError(f"--set {text}, but {name} is {settings[name]} already: say it once")
        settings[name] = value
    return settings


def _load_options(
    layers: int | None, exit_layers: str | None, pooling: str | None, shared: bool | None, classifier_size: int | None
) -> dict[str, Any]:
    options: dict[str, Any] = {"layers": layers, "pooling": pooling, "classifier_size": classifier_size}
    if exit_layers is not None:
        try:
            options["exit_layers"] = [int(layer) for layer in exit_layers.split(",")]
        except ValueError as error:
            raise OfframpError(f"--exit-layers {exit_layers}: write layers, such as 3,6,12") from error
    chosen = {name: value for name, value in options.items() if value is not None}
    heads = 1 if shared else None  # None: each exit its own
    return chosen if shared is None else {**chosen, "poolers": heads, "classifiers": heads}
