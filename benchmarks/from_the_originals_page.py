"""Write the scores of RomeBERT's three curves into docs/how-to/from-the-originals.md, from results/romebert/.

python benchmarks/from_the_originals_page.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from recipes_page import ROOT

PAGE = ROOT / "docs" / "how-to" / "from-the-originals.md"
RESULTS = ROOT / "benchmarks" / "results" / "romebert"
TASKS = {"mrpc": "MRPC, F1", "rte": "RTE, accuracy"}
METHODS = ("DeeBERT+SD", "SD", "SD+GR")
BLOCK = re.compile(r"(?<=<!-- curves -->\n).*?(?=<!-- end of curves -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with its table."""
    return BLOCK.sub(lambda _: table(), page)


def table() -> str:
    scores = {(task, method): scores_of(RESULTS / f"{task}-{method}.json") for task in TASKS for method in METHODS}
    layers = range(1, len(next(iter(scores.values()))) + 1)
    head = ["| dev | method |", *(f" layer {layer} |" for layer in layers)]
    rows = [
        f"| {TASKS[task]} | {method} | " + " | ".join(f"{100 * score:.1f}" for score in found) + " |"
        for (task, method), found in scores.items()
    ]
    return "\n".join(["".join(head), "|---|---|" + "---:|" * len(layers), *rows]) + "\n"


def scores_of(path: Path) -> list[float]:
    results = json.loads(path.read_text(encoding="utf-8"))
    return [exit["scores"][results["metrics"][0]] for exit in results["exits"]]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
