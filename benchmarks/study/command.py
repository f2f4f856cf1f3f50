"""Run what is missing of the study.

    python -m benchmarks.study --data DIR --backbones DIR --out benchmarks/results/study --jobs 8 --seconds 570

DIR of the data holds glue/ and elue/, DIR of the backbones a folder `minilm` (and others by their names in the study,
where they are not in the box). Cells that are there are not run again; those that failed are.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.study import store
from benchmarks.study.grid import BACKBONES, TASKS, Cell, grid, only, work_of
from benchmarks.study.probes import probes
from benchmarks.study.sharing import shared_gpu
from benchmarks.study.workers import Outcome, Run, run_all


def make_run(data: Path, backbones: Path, pooling: str | None = None) -> Run:
    """What runs a cell, made once in each process; `pooling` instead of what the study says of a backbone."""
    import torch

    from benchmarks.study.training import Workplace, run_cell

    torch.set_num_threads(1)
    place = Workplace(data, backbones)
    if pooling is not None:
        place.known_backbones = {name: replace(one, pooling=pooling) for name, one in BACKBONES.items()}

    def run(cell: Cell) -> dict[str, Any]:
        try:
            return run_cell(cell, place)
        finally:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()  # the memory of this cell's graphs is for the others

    return run


def work(cell: Cell) -> float:
    return work_of(cell, BACKBONES[cell.backbone], TASKS[cell.task])


class Progress:
    """A line for each cell."""

    def __init__(self, out: Path, cells: int) -> None:
        self.out, self.cells = out, cells
        self.started = time.monotonic()
        self.done = self.failed = 0

    def __call__(self, outcome: Outcome) -> None:
        if outcome.found is None:
            self.failed += 1
            store.write_failure(self.out, outcome.cell, outcome.error or "")
            said = "failed: " + (outcome.error or "").strip().splitlines()[-1]
        else:
            self.done += 1
            store.write(self.out, outcome.cell, outcome.found)
            exits = outcome.found["exits"]
            said = f"{outcome.found['metric']} {100 * exits[0]['score']:.1f} … {100 * exits[-1]['score']:.1f}"
        count = f"[{self.done + self.failed}/{self.cells}, {time.monotonic() - self.started:.0f} s]"
        print(f"{count} {outcome.cell.name} {outcome.seconds:.0f} s {said}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--backbones", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/study"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", nargs="+", default=[], metavar="KEY=VALUE", help="task, method, backbone, seed")
    parser.add_argument("--seconds", type=float, help="begin nothing that would not be done by then")
    parser.add_argument("--probe", action="store_true", help="run the cells that learning rates are chosen by instead")
    parser.add_argument("--pooling", help="try another pooling of the exits, into another --out")
    parser.add_argument("--list", action="store_true", help="say what is missing, and run nothing")
    asked = parser.parse_args(arguments)
    try:
        cells = only(probes() if asked.probe else grid(), asked.only)
    except ValueError as error:
        parser.error(str(error))
    to_do = store.missing(asked.out, cells)
    if asked.list:
        print("\n".join(cell.name for cell in to_do))
    elif to_do:
        progress = Progress(asked.out, len(to_do))
        with shared_gpu() as how:
            print(f"{len(to_do)} of {len(cells)} cells to run, {asked.jobs} at a time ({how})", flush=True)
            spent = time.monotonic() - progress.started
            left = None if asked.seconds is None else max(0.0, asked.seconds - spent)
            run = partial(make_run, asked.data.absolute(), asked.backbones.absolute(), asked.pooling)
            run_all(to_do, run, asked.jobs, work, progress, left)
    failed, missing = store.failed(asked.out, cells), store.missing(asked.out, cells)
    print(f"{len(cells) - len(missing)} cells done, {len(failed)} failed, {len(missing) - len(failed)} missing")
    return 1 if failed else 0
