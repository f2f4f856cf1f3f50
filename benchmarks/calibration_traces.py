"""Train a multi-exit model on part of a task's labelled rows, and keep what every exit says to the others.

    python benchmarks/calibration_traces.py --backbone MiniLM --data DIR --out benchmarks/traces

One trace a task, `sst2.npz` and `imdb.npz`: `HELD_OUT` rows that were not trained on, in random order, so that any part
of them is exchangeable with the rest. Validity and power of `offramp calibrate` are measured on them. DIR holds
the folders `glue/SST-2` and `elue/IMDb` as their benchmarks hand them out.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from offramp.evaluation.run import evaluate
from offramp.tasks import task as make_task
from offramp.training.published import published_recipe, with_settings
from offramp.training.run import train

TASKS = {"sst2": ("sst-2", "glue", 20_000, 2), "imdb": ("elue/imdb", "elue", 10_000, 3)}
"""Name, folder, rows to train on, epochs."""
HELD_OUT = 10_000
SEED = 1


def write_parts(name: str, folder: Path, rows: int, to: Path) -> tuple[Path, Path]:
    """Two files, of rows to train on and rows to ask, drawn from all labelled ones."""
    task = make_task(name, data_dir=folder)
    splits = [task.split(split) for split in ("train", "dev")]
    labelled = [
        (text, task.labels[int(label)])
        for split in splits
        for text, label in zip(split.texts, split.labels, strict=True)
    ]
    order = np.random.default_rng(SEED).permutation(len(labelled))
    paths = (to / "train.csv", to / "held_out.csv")
    for path, part in zip(paths, (order[:rows], order[rows : rows + HELD_OUT]), strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *(labelled[row] for row in part)])
    return paths


def make_trace(name: str, backbone: str, data: Path, out: Path) -> None:
    task_name, folder, rows, epochs = TASKS[name]
    with tempfile.TemporaryDirectory() as scratch:
        train_file, held_out = write_parts(task_name, data / folder, rows, Path(scratch))
        task = make_task(data=train_file, dev=held_out, text="text", label="label")
        schedule = {"learning_rate": 1e-4, "epochs": epochs, "batch_size": 64, "warmup": 0.06}
        recipe = with_settings(published_recipe("elasticbert", task_name, "bert"), schedule, {})
        settings = {"seed": SEED, "max_length": 128, "eval_steps": 10**6, "checkpoints": 0, "quiet": True}
        pooled = {"pooling": "mean"}  # MiniLM was trained on means: its first token says nothing before layer 4
        model = train(backbone, task, Path(scratch) / "model", recipe, load=pooled, **settings)
        trace = evaluate(model, task, split="dev")
    trace = replace(trace, model=f"{Path(backbone).name}, elasticbert", source=task_name, split="held out")
    trace.save(out / f"{name}.npz")
    print(name, " ".join(f"{100 * exit.scores['accuracy']:.1f}" for exit in trace.scores()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    arguments = parser.parse_args()
    for name in arguments.tasks:
        make_trace(name, arguments.backbone, arguments.data, arguments.out)


if __name__ == "__main__":
    main()
