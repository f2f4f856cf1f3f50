"""Write the tables and figures of docs/four_recipes.md from benchmarks/results/recipes.

python benchmarks/recipes_page.py
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from statistics import mean, stdev

from offramp.evaluation.comparison import compare
from offramp.evaluation.results import Results

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "results" / "recipes"
PAGE = ROOT / "docs" / "four_recipes.md"
RECIPES = ("plain", "deebert", "romebert", "elasticbert")
BUDGETS = ("full_depth", "score_2x", "score_3x", "score_4x", "area")


def exits_table(task: str) -> list[str]:
    """Mean and standard deviation over seeds of each exit's score, a row for each recipe."""
    rows = []
    for recipe in RECIPES:
        runs = [Results.read(path) for path in sorted(RUNS.glob(f"{task}-{recipe}-seed*.json"))]
        scores = zip(*([100 * exit.scores[run.metric] for exit in run.exits] for run in runs), strict=True)
        cells = " | ".join(f"{mean(values):.1f} ± {stdev(values):.1f}" for values in scores)
        rows.append(f"| {recipe} | {cells} |")
    return rows


def cost_table(task: str, figures: Path) -> list[str]:
    """What each recipe reaches within a budget of layers; the figures go to a folder."""
    comparison = compare(sorted(RUNS.glob(f"{task}-*.json")), figures, group_seeds=True)
    found = {row.recipe: row for rows in comparison.groups().values() for row in rows}
    rows = []
    for recipe in RECIPES:
        row = found[recipe]
        cells = " | ".join(f"{100 * row.numbers[name]:.1f} ± {100 * row.deviations[name]:.1f}" for name in BUDGETS)
        rows.append(f"| {recipe} | {cells} |")
    return rows


def filled(page: str, figures: Path) -> str:
    """The page with every table made anew; a table begins below its header."""
    for title, rows in (
        ("SST-2, accuracy", exits_table("sst-2")),
        ("MRPC, F1", exits_table("mrpc")),
        ("RTE, accuracy", exits_table("rte")),
        ("SST-2, budget", cost_table("sst-2", figures)),
    ):
        page = with_rows(page, title, rows)
    return page


def with_rows(page: str, title: str, rows: list[str]) -> str:
    """A page with other rows in the one table whose header begins with `title`."""
    head = rf"(\| {re.escape(title)} \|.*\n\|[-|]+\n)(?:\|.*\n)*"
    page, replaced = re.subn(head, lambda match: match[1] + "\n".join(rows) + "\n", page)
    assert replaced == 1, title
    return page


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")
        for name in ("exits", "score_cost"):
            shutil.copy(Path(folder) / f"{name}.png", ROOT / "docs" / "img" / f"sst2_{name}.png")


if __name__ == "__main__":
    main()
