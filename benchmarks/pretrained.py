"""Fine-tune a pre-trained backbone, and the same network from scratch, on several tasks: what every exit scores.

    python benchmarks/pretrained.py --backbone offramp-mini --data DIR --out benchmarks/results/pretrained --jobs 16

A cell (start, task, seed) is one JSON file, the `results.json` of `offramp evaluate`; cells that are there are not run
again. `--learning-rate`, `--epochs`, `--recipe` and `--pooling` try other settings (into another folder).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import product
from pathlib import Path

from cells import grid_arguments, run_grid

TASKS = ("sst-2", "mrpc", "rte")
STARTS = ("pretrained", "scratch")
SCHEDULES: dict[str, dict[str, float]] = {
    "sst-2": {"learning_rate": 2e-4, "epochs": 3, "batch_size": 64},
    "mrpc": {"learning_rate": 2e-4, "epochs": 8, "batch_size": 32},
    "rte": {"learning_rate": 2e-4, "epochs": 8, "batch_size": 32},
}


def cell_name(start: str, task: str, seed: int) -> str:
    return f"{task}-{start}-seed{seed}"


def run_cell(arguments: argparse.Namespace) -> None:
    """Train and evaluate one cell, in this process."""
    import torch

    import offramp
    from offramp.evaluation.run import evaluate
    from offramp.interop.checkpoint import read_checkpoint
    from offramp.tasks import task as make_task
    from offramp.training.published import published_recipe, with_settings
    from offramp.training.run import train

    torch.set_num_threads(1)
    start, task_name, seed = arguments.cell.split(":")
    schedule = {**SCHEDULES[task_name], "warmup": 0.06, "weight_decay": 0.1}
    chosen = {"learning_rate": arguments.learning_rate, "epochs": arguments.epochs}
    schedule |= {key: value for key, value in chosen.items() if value is not None}
    family = read_checkpoint(arguments.backbone).config["model_type"]
    recipe = with_settings(published_recipe(arguments.recipe, task_name, family), schedule, {})
    task = make_task(task_name, data_dir=arguments.data / "glue")
    name = cell_name(start, task_name, int(seed))
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        backbone = arguments.backbone
        if start == "scratch":
            backbone = str(untrained(backbone, Path(scratch) / "untrained", int(seed)))
        model = train(
            backbone,
            task,
            Path(scratch) / "model",
            recipe,
            seed=int(seed),
            checkpoints=0,
            quiet=True,
            load={"pooling": arguments.pooling},
        )
        trained = time.perf_counter() - started
        trace = evaluate(model, task, split="dev", batch_size=128)
    results = trace.results(name=name)
    results.settings.update(start=start, recipe=arguments.recipe, pooling=arguments.pooling, seed=int(seed))
    results.settings.update(schedule=schedule, train_seconds=round(trained, 1), offramp=offramp.__version__)
    results.write(arguments.out / f"{name}.json")
    scores = " ".join(f"{100 * exit.scores[results.metric]:.1f}" for exit in results.exits)
    print(name, f"{trained:.0f} s", results.metric, scores, flush=True)


def untrained(backbone: str, folder: Path, seed: int) -> Path:
    """The same network with weights drawn anew, and the same vocabulary."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    from offramp.backbones.base import REGISTRY
    from offramp.interop.checkpoint import read_checkpoint

    checkpoint = read_checkpoint(backbone)
    config = REGISTRY[checkpoint.config["model_type"]].config_class.from_pretrained(checkpoint.folder)
    torch.manual_seed(seed)
    AutoModel.from_config(config, dtype=torch.float32).save_pretrained(folder)
    AutoTokenizer.from_pretrained(checkpoint.folder).save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grid_arguments(parser)
    parser.add_argument("--starts", nargs="+", default=STARTS)
    parser.add_argument("--recipe", default="elasticbert")
    parser.add_argument("--pooling", default="first")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--epochs", type=int)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.cell:
        run_cell(arguments)
        return
    seeds = range(1, arguments.seeds + 1)
    cells = list(product(arguments.starts, arguments.tasks or TASKS, seeds))
    extra = ["--recipe", arguments.recipe, "--pooling", arguments.pooling]
    for option in ("learning_rate", "epochs"):
        if getattr(arguments, option) is not None:
            extra += [f"--{option.replace('_', '-')}", str(getattr(arguments, option))]
    run_grid(__file__, arguments, cells, cell_name, extra)


if __name__ == "__main__":
    main()
