"""Write the tables of docs/explanation/engine.md from benchmarks/results/engine_cpu.json and engine_h200.json.

python benchmarks/engine_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from recipes_page import ROOT, with_rows

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "engine.md"
TABLES = {"on two cores": "engine_cpu.json", "on an H200": "engine_h200.json"}


def rows(file: str) -> Iterator[str]:
    """Every measure, its target and whether it is met."""
    for measure in json.loads((RESULTS / file).read_text(encoding="utf-8")):
        value, target, least = measure["value"], measure["target"], measure["detail"]["compared_with"] == "at least"
        met = value >= target if least else value <= target
        bound = f"{'at least' if least else 'at most'} {target:g}"
        yield f"| {measure['measure']} | {value:.3g} | {bound} | {'yes' if met else '**no**'} |"


def filled(page: str) -> str:
    for title, file in TABLES.items():
        page = with_rows(page, title, list(rows(file)))
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
