"""Write the tables of docs/explanation/pretraining.md from benchmarks/results/pretraining.

python benchmarks/pretraining_page.py
"""

from __future__ import annotations

import json

from results_page import ROOT, with_rows

PAGE = ROOT / "docs" / "explanation" / "pretraining.md"
RUNS = ROOT / "benchmarks" / "results" / "pretraining"


def filled(page: str) -> str:
    record = json.loads((RUNS / "offramp-mini.json").read_text(encoding="utf-8"))
    losses = record["held_out"]["words"]
    return with_rows(page, "exit", [f"| {layer} | {loss:.2f} |" for layer, loss in enumerate(losses, start=1)])


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
