"""Write the table of docs/how-to/ray.md from benchmarks/results/ray.json.

python benchmarks/ray_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from recipes_page import ROOT, with_rows

PAGE = ROOT / "docs" / "how-to" / "ray.md"
LOSSES = {"worker_killed": "one worker killed", "machine_lost": "one of two machines lost (both were this one)"}


def rows(found: dict[str, Any]) -> Iterator[str]:
    for name, loss in LOSSES.items():
        run = found[name]
        when = f"{loss} after {run['lost_after_rows']:,} of {run['rows']:,} rows"
        wrong = run["rows_missing_or_too_many"] + run["rows_twice"] + run["rows_with_another_answer"]
        same = f"{run['rows_out']:,} rows out, {wrong} missing, twice or answered otherwise than by one process"
        yield f"| {when} | {same} | {run['ray_seconds']:.0f} s; one process: {run['single_process_seconds']:.0f} s |"
    run = found["server"]
    grown = f"{run['clients']} clients at a server of {run['replicas_before_load']} replica"
    wrong = run["refused"] + run["other_answers"]
    answers = f"{run['requests']:,} requests, {wrong} refused or answered otherwise than by the plain server"
    yield f"| {grown} | {answers} | {run['replicas_under_load']} replicas after {run['seconds_to_grow']:.0f} s |"


def filled(page: str) -> str:
    found = json.loads((ROOT / "benchmarks" / "results" / "ray.json").read_text(encoding="utf-8"))
    return with_rows(page, "what was done", list(rows(found)))


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
