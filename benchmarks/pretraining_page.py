"""Write the tables of docs/explanation/pretraining.md from benchmarks/results/pretraining.

python benchmarks/pretraining_page.py
"""

from __future__ import annotations

import json
from statistics import mean, stdev
from typing import Any

from pretrained import STARTS, TASKS
from recipes_page import ROOT, with_rows

PAGE = ROOT / "docs" / "explanation" / "pretraining.md"
RUNS = ROOT / "benchmarks" / "results" / "pretraining"
FINE_TUNED = ROOT / "benchmarks" / "results" / "pretrained"
SHOWN = (1, 2, 4, 8, 12)
"""Exits in the table of tasks."""
OF_AN_ARM = (1, 3, 6, 9, 12)
"""Exits in the table of ways to train."""


def filled(page: str) -> str:
    final, text, albert = (
        run(name)["held_out"] for name in ("offramp-mini", "offramp-mini-text", "offramp-mini-albert")
    )
    losses = zip(final["words"], text["words"], albert["words"], final["teacher"], strict=True)
    rows = [f"| {layer} | {' | '.join(f'{loss:.2f}' for loss in each)} |" for layer, each in enumerate(losses, 1)]
    page = with_rows(page, "exit", rows)
    page = with_rows(page, "task", [row(task, start) for task in TASKS for start in STARTS])
    return with_rows(page, "way", [arm(name, found) for name, found in run("ablation")["arms"].items()])


def run(name: str) -> dict[str, Any]:
    return json.loads((RUNS / f"{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def arm(name: str, found: dict[str, Any]) -> str:
    """A way to train, and the losses of some exits after the same time."""
    cells = [f"{found['held_out']['words'][layer - 1]:.2f}" for layer in OF_AN_ARM]
    return f"| {name} | {found['steps']} | {found['step_ms']:.0f} | " + " | ".join(cells) + " |"


def row(task: str, start: str) -> str:
    """Mean and standard deviation over the seeds."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in FINE_TUNED.glob(f"{task}-{start}-seed*.json")]
    metric = results[0]["metrics"][0]
    scores = [[exit["scores"][metric] for exit in result["exits"]] for result in results]
    cells = [f"{100 * mean(one):.1f} ± {100 * stdev(one):.1f}" for one in zip(*scores, strict=True)]
    return f"| {task}, {metric} | {start} | " + " | ".join(cells[layer - 1] for layer in SHOWN) + " |"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
