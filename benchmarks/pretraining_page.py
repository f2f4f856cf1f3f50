"""Write the tables of docs/explanation/pretraining.md from benchmarks/results/pretraining.

python benchmarks/pretraining_page.py
"""

from __future__ import annotations

import json
from statistics import mean, stdev

from pretrained import STARTS, TASKS
from results_page import ROOT, with_rows

PAGE = ROOT / "docs" / "explanation" / "pretraining.md"
RUNS = ROOT / "benchmarks" / "results" / "pretraining"
FINE_TUNED = ROOT / "benchmarks" / "results" / "pretrained"
SHOWN = (1, 2, 4, 8, 12)
"""Exits in the table of tasks."""


def filled(page: str) -> str:
    record = json.loads((RUNS / "offramp-mini.json").read_text(encoding="utf-8"))["held_out"]
    losses = zip(record["words"], record["teacher"], strict=True)
    page = with_rows(
        page, "exit", [f"| {layer} | {words:.2f} | {missed:.2f} |" for layer, (words, missed) in enumerate(losses, 1)]
    )
    return with_rows(page, "task", [row(task, start) for task in TASKS for start in STARTS])


def row(task: str, start: str) -> str:
    """Mean and standard deviation over the seeds."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in FINE_TUNED.glob(f"{task}-{start}-seed*.json")]
    metric = results[0]["metrics"][0]
    scores = [[exit["scores"][metric] for exit in result["exits"]] for result in results]
    cells = [f"{100 * mean(one):.1f} ± {100 * stdev(one):.1f}" for one in zip(*scores, strict=True)]
    return f"| {task}, {metric} | {start} | " + " | ".join(cells[layer - 1] for layer in SHOWN) + " |"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
