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
from statistics import fmean

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


def mean_areas(cells: Path, name: str) -> Areas:
    """Under the curve of score against layers, over the tasks; of what was tried on all of them."""
    backbone = replace(BACKBONES[name], seeds=(SEED,))
    tasks = tuple(TASKS[task] for task in PROBED_TASKS)
    there = store.read_all(cells, [probe for probe in probes() if probe.backbone == name])
    areas: Areas = {method: {} for method in PROBED_METHODS}
    for share in SHARES:
        of_share = {probe: found for probe, found in there.items() if isinstance(probe, Probe) and probe.share == share}
        plain_cells = {Cell(p.backbone, p.task, p.method, p.seed): found for p, found in of_share.items()}
        number = Summary(backbone, plain_cells, tasks).area("layers")
        for method in PROBED_METHODS:
            if all(Cell(name, task, method, SEED) in plain_cells for task in PROBED_TASKS):
                areas[method][share] = fmean(number(task, method, SEED) or 0.0 for task in PROBED_TASKS)
    return areas


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
