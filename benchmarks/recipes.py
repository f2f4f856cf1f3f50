"""Train one backbone by several recipes on several tasks, some seeds each, and keep what every exit scores.

    python benchmarks/recipes.py --backbone MiniLM --data DIR --out benchmarks/results/recipes

A cell (task, recipe, seed, layers) is one JSON file, the `results.json` of `offramp evaluate`; cells that are there are
not run again. `--static` trains plain models of every depth instead: the reference curve of the ELUE score.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import product
from pathlib import Path

from cells import grid_arguments, run_grid

TASKS = ("sst-2", "mrpc", "rte")
RECIPES = ("plain", "deebert", "romebert", "elasticbert")
SCHEDULES: dict[str, dict[str, float]] = {
    "sst-2": {"learning_rate": 1e-4, "epochs": 3, "batch_size": 64},
    "mrpc": {"learning_rate": 1e-4, "epochs": 6, "batch_size": 32},
    "rte": {"learning_rate": 5e-5, "epochs": 10, "batch_size": 32},
    "elue/sts-b": {"learning_rate": 1e-4, "epochs": 6, "batch_size": 32},
    "elue/imdb": {"learning_rate": 1e-4, "epochs": 3, "batch_size": 32},
}
"""The same for every recipe, chosen for `plain` at full depth; docs/log.md says what else was tried."""
LOOK_EVERY = {"sst-2": 40}
TRAIN_EMBEDDINGS = {("sst-2", "romebert"), ("sst-2", "elasticbert")}
"""Embeddings are frozen but for the joint recipes on SST-2, whose first exits suffer from it.

The weights with the best dev score are kept, as in ElasticBERT's static training; scores on the same dev set are a
little too good for it.
"""


def cell_name(task: str, recipe: str, seed: int, layers: int | None) -> str:
    depth = f"-{layers}layers" if layers else ""
    return f"{task.replace('/', '_')}-{recipe}{depth}-seed{seed}"


def run_cell(arguments: argparse.Namespace) -> None:
    """Train and evaluate one cell, in this process."""
    import offramp
    from offramp.evaluation.elue import reference_curve
    from offramp.evaluation.run import evaluate
    from offramp.tasks import task as make_task
    from offramp.training.published import published_recipe, with_settings
    from offramp.training.run import train

    task_name, recipe_name, seed, layers = arguments.cell.split(":")
    schedule = {**SCHEDULES[task_name], "warmup": 0.06}
    recipe = with_settings(published_recipe(recipe_name, task_name, "bert"), schedule, {})
    frozen = (task_name, recipe_name) not in TRAIN_EMBEDDINGS
    look_every = 100 if int(layers) else LOOK_EVERY.get(task_name, 100)
    task = make_task(task_name, data_dir=arguments.data / ("elue" if "/" in task_name else "glue"))
    name = cell_name(task_name, recipe_name, int(seed), int(layers))
    cut = {"layers": int(layers), "exits": "last"} if int(layers) else {}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        model = train(
            arguments.backbone,
            task,
            Path(scratch) / "model",
            recipe,
            seed=int(seed),
            keep="best",
            eval_steps=look_every,
            freeze_embeddings=frozen,
            checkpoints=0,
            quiet=True,
            load=cut,
        )
        trained = time.perf_counter() - started
        trace = evaluate(model, task, split="dev", batch_size=128)
    results = trace.results(name=name, reference=reference_curve(task.name))
    results.settings.update(
        backbone=arguments.backbone, recipe=recipe_name, seed=int(seed), schedule=schedule, source=task_name
    )
    results.settings.update(
        freeze_embeddings=frozen, look_every=look_every, train_seconds=round(trained, 1), offramp=offramp.__version__
    )
    results.write(arguments.out / f"{name}.json")
    print(
        name, f"{trained:.0f} s", " ".join(f"{100 * e.scores[results.metric]:.1f}" for e in results.exits), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grid_arguments(parser)
    parser.add_argument("--static", action="store_true", help="plain models of every depth")
    parser.add_argument("--depth", type=int, default=6, help="layers of the backbone, for --static")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.cell:
        run_cell(arguments)
        return
    seeds = range(1, arguments.seeds + 1)
    if arguments.static:
        tasks = arguments.tasks or ("sst-2", "elue/imdb", "elue/sts-b", "mrpc")
        depths = range(arguments.depth, 0, -1)
        cells = [(task, "plain", seed, depth) for task, depth, seed in product(tasks, depths, seeds)]
    else:
        cells = [(task, recipe, seed, 0) for task, seed, recipe in product(arguments.tasks or TASKS, seeds, RECIPES)]
    run_grid(__file__, arguments, cells, cell_name)


if __name__ == "__main__":
    main()
