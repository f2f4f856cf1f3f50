"""Train one backbone with gates at several targets, beside the ungated model and models cut to fewer layers.

    python benchmarks/gated_training.py --backbone MiniLM --data DIR --out benchmarks/results/gated

A cell (task, variant, seed) is one JSON file, the `results.json` of `offramp evaluate`; cells that are there are not
run again. Variants: `plain` and `plain-4` (the first 4 layers), `plain-long` (as many epochs as a gated model has in
all), `elasticbert`, `ebert-0.6-1` (target 0.6, one gate for each neuron), `ebert-0.6-64` (one for each 64),
`ebert+elasticbert-0.6-64`; further settings follow, as in `ebert-0.4-64-distil=0.5`. With `--keep FOLDER` the models of
the first seed are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from itertools import product
from pathlib import Path

from cells import grid_arguments, run_grid

STATIC = ("plain", "plain-long", "plain-5", "plain-4", "plain-3", "plain-2", "plain-1")
VARIANTS: dict[str, tuple[str, ...]] = {
    "sst-2": (
        *(f"ebert-{target}-{block}" for target, block in product((0.8, 0.6, 0.4), (1, 64))),
        "ebert+elasticbert-0.6-64",
        "elasticbert",
        *STATIC,
    ),
    "mnli-small": (
        *(f"ebert-{target}-{block}" for target, block in product((0.8, 0.6, 0.4), (1, 64))),
        "ebert+elasticbert-0.6-64",
        "elasticbert",
        *STATIC,
    ),
    "squad": ("ebert+elasticbert-0.6-64", "ebert-0.6-64", "elasticbert", *STATIC[:5]),
}
SCHEDULES: dict[str, dict[str, float]] = {
    "sst-2": {"learning_rate": 1e-4, "epochs": 3, "batch_size": 64},
    "mnli-small": {"learning_rate": 1e-4, "epochs": 4, "batch_size": 32},
    "squad": {"learning_rate": 1e-4, "epochs": 3, "batch_size": 32},
}
"""The same for all variants; the last weights are kept, and no choice is made on the dev set.

A gated model trains twice as long as an ungated one: a fine-tuning without gates, then one with them. Embeddings are
frozen, but for the joint recipes on SST-2, whose first exits suffer from it.
"""
FOLDERS = {"sst-2": "glue", "mnli-small": "glue/MNLI-small", "squad": "squad"}
NEVER = 10**9


def cell_name(task: str, variant: str, seed: int) -> str:
    return f"{task}-{variant}-seed{seed}"


def run_cell(arguments: argparse.Namespace) -> None:
    """Train and evaluate one cell, in this process."""
    import offramp
    from offramp.evaluation.run import evaluate
    from offramp.tasks import task as make_task
    from offramp.training.published import published_recipe, with_settings
    from offramp.training.run import train

    task_name, variant, seed = arguments.cell.split(":")
    task = make_task(task_name.removesuffix("-small"), data_dir=arguments.data / FOLDERS[task_name])
    recipe_name, *numbers = variant.split("-")
    gated = recipe_name.startswith("ebert")
    schedule = {**SCHEDULES[task_name], "warmup": 0.06}
    settings: dict[str, str] = {}
    if gated:
        settings = {"target": numbers[0], "block": numbers[1], **dict(more.split("=") for more in numbers[2:])}
    elif numbers == ["long"]:
        schedule["epochs"] *= 2
    recipe = with_settings(published_recipe(recipe_name, task.name, "bert"), schedule, settings)
    load: dict[str, object] = {} if "elasticbert" in recipe_name else {"exits": "last"}
    if numbers and numbers[0].isdigit():
        load["layers"] = int(numbers[0])
    frozen = (task_name, "elasticbert" in recipe_name) != ("sst-2", True)
    name = cell_name(task_name, variant, int(seed))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        kept = arguments.keep and seed == "1"
        model = train(
            arguments.backbone,
            task,
            (arguments.keep if kept else Path(scratch)) / name,
            recipe,
            seed=int(seed),
            eval_steps=NEVER,
            freeze_embeddings=frozen,
            checkpoints=0,
            quiet=True,
            load=load,
        )
        trained = time.perf_counter() - started
        trace = evaluate(model, task, batch_size=128)
    results = dataclasses.replace(trace.results(name=name), model=name)  # not the folder, which is gone
    results.settings.update(
        backbone=arguments.backbone, recipe=variant, seed=int(seed), schedule=schedule, source=task_name
    )
    results.settings.update(freeze_embeddings=frozen)
    results.settings.update(train_seconds=round(trained, 1), offramp=offramp.__version__)
    results.write(arguments.out / f"{name}.json")
    ratio = f"{results.gates.ratio:.3f} of FLOPs" if results.gates else ""
    scores = " ".join(f"{100 * exit.scores[results.metric]:.1f}" for exit in results.exits)
    print(name, f"{trained:.0f} s", ratio, scores, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grid_arguments(parser)
    parser.add_argument("--variants", nargs="+", default=None)
    parser.add_argument("--keep", type=Path, default=None, help="folder for the models of the first seed")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.cell:
        run_cell(arguments)
        return
    tasks = arguments.tasks or list(VARIANTS)[::-1]  # the longest first
    cells = [
        (task, variant, seed)
        for seed, task in product(range(1, arguments.seeds + 1), tasks)
        for variant in arguments.variants or VARIANTS[task]
    ]
    extra = ["--keep", str(arguments.keep)] if arguments.keep else []
    run_grid(__file__, arguments, cells, cell_name, extra)


if __name__ == "__main__":
    main()
