"""Which learning rate suits each method: tried on some tasks, with a seed that is not reported.

    python -m benchmarks.study --probe --only backbone=offramp-mini --data DIR --backbones DIR --out CELLS
    python -m benchmarks.study.probes --cells CELLS

CELLS is benchmarks/results/study/probes. The second command writes `rates.json` beside this file, which the study
reads. Nobody else chooses.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.study import store
from benchmarks.study.grid import BACKBONES, METHODS, PROBED, RATES, TASKS, Cell, Probe
from benchmarks.study.summary import Summary
from offramp.whole_file import whole_file

SEED, SHARES = 11, (1.0, 0.5, 0.25)
PROBED_BACKBONES = (PROBED, "minilm")
PROBED_TASKS = ("sst-2", "mrpc", "sts-b")
PROBED_METHODS = tuple(name for name in METHODS if not name.startswith("ebert"))
"""Gates have rates and phases of their own, and take three times as long: they stay at the plain model's rate."""

Areas = dict[str, dict[float, float]]
"""By method and share."""


def probes() -> list[Cell]:
    """Every cell that may be tried."""
    tried = product(PROBED_BACKBONES, PROBED_TASKS, PROBED_METHODS, SHARES)
    return [Probe(backbone, task, method, SEED, share) for backbone, task, method, share in tried]


def mean_areas(cells: Path, backbone: str) -> Areas:
    """By method, of the shares that were tried on all tasks."""
    there = store.read_all(cells, [probe for probe in probes() if probe.backbone == backbone])
    areas: Areas = {method: {} for method in PROBED_METHODS}
    for share in SHARES:
        summary = of_share(backbone, share, there)
        for method in PROBED_METHODS:
            area = summary.over_tasks(summary.area("layers"), method)
            if area is not None:
                areas[method][share] = area.mean
    return areas


def of_share(backbone: str, share: float, there: dict[Cell, dict[str, Any]]) -> Summary:
    """The probes of one share, as if they were the study."""
    cells = {
        Cell(probe.backbone, probe.task, probe.method, probe.seed): found
        for probe, found in there.items()
        if isinstance(probe, Probe) and probe.share == share
    }
    return Summary(replace(BACKBONES[backbone], seeds=(SEED,)), cells, tuple(TASKS[task] for task in PROBED_TASKS))


def chosen(areas: Areas) -> dict[str, float]:
    """The share with the largest area."""
    return {method: max(tried, key=lambda share: tried[share]) for method, tried in areas.items() if tried}


def in_percent(tried: dict[float, float]) -> dict[str, float]:
    return {f"{share:g}": round(100 * area, 2) for share, area in tried.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=Path("benchmarks/results/study/probes"))
    parser.add_argument("--rates", type=Path, default=RATES, help="the file to write")
    asked = parser.parse_args(arguments)
    found = {}
    for backbone in PROBED_BACKBONES:
        areas = mean_areas(asked.cells, backbone)
        if any(areas.values()):
            found[backbone] = {
                "areas": {method: in_percent(areas[method]) for method in areas},
                "chosen": chosen(areas),
            }
    with whole_file(asked.rates) as file:
        file.write(json.dumps(found, indent=1) + "\n")
    print(asked.rates.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
