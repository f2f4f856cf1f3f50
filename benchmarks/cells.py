"""A grid of runs, each a process of its own that leaves one JSON file; those that are there are not run again."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def grid_arguments(parser: argparse.ArgumentParser) -> None:
    """What every grid takes."""
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, elue/ or squad/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=None)
    parser.add_argument("--cell", help="run this one in this process")


def run_grid(
    script: str,
    arguments: argparse.Namespace,
    cells: Sequence[tuple[object, ...]],
    name_of: Callable[..., str],
    extra: Sequence[str] = (),
) -> None:
    """Run what is missing, some at a time, and exit with 1 if any failed."""
    missing = [cell for cell in cells if not (arguments.out / f"{name_of(*cell)}.json").is_file()]
    command = [sys.executable, script, "--backbone", arguments.backbone, "--data", str(arguments.data)]
    command += ["--out", str(arguments.out), *extra]

    def run(cell: tuple[object, ...]) -> int:
        return subprocess.run([*command, "--cell", ":".join(map(str, cell))]).returncode

    with ThreadPoolExecutor(arguments.jobs) as pool:
        failed = [cell for cell, status in zip(missing, pool.map(run, missing), strict=True) if status]
    print(f"{len(missing) - len(failed)} cells run, {len(failed)} failed, {len(cells) - len(missing)} were there")
    sys.exit(bool(failed))
