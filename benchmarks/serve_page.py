"""Write the table of docs/how-to/serve.md from benchmarks/results/serving_cpu.json.

python benchmarks/serve_page.py
"""

from __future__ import annotations

from engine_page import rows
from recipes_page import ROOT, with_rows

PAGE = ROOT / "docs" / "how-to" / "serve.md"


def filled(page: str) -> str:
    return with_rows(page, "on two cores", list(rows("serving_cpu.json")))


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
