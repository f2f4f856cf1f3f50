"""Write the tables of docs/explanation/calibration.md from benchmarks/results/calibration.json.

python benchmarks/calibration_page.py
"""

from __future__ import annotations

from engine_page import rows
from recipes_page import ROOT, with_rows

PAGE = ROOT / "docs" / "explanation" / "calibration.md"
TABLES = {"1,000 splits": "validity", "n = 2,000": "power", "100,000 rows": "speed"}
"""The beginning of each table's header, and of its measures."""


def filled(page: str) -> str:
    every = list(rows("calibration.json"))
    for title, kind in TABLES.items():
        own = [row.replace(f"| {kind}: ", "| ", 1) for row in every if row.startswith(f"| {kind}: ")]
        page = with_rows(page, title, own)
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
