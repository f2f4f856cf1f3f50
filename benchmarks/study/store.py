"""The study's files: a JSON for each cell that is done, and one for each that failed last time."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.study.grid import BACKBONES, TASKS, Cell, schedule_of
from offramp.errors import OfframpError, one_line
from offramp.whole_file import whole_file

FORMAT = 1
"""Raised when a field changes its meaning."""


def path_of(out: Path, cell: Cell) -> Path:
    return out / f"{cell.name}.json"


def failure_of(out: Path, cell: Cell) -> Path:
    return out / f"{cell.name}.failed.json"


def missing(out: Path, cells: Iterable[Cell]) -> list[Cell]:
    """What is still to be done; what failed, or was trained otherwise than now, counts among it."""
    cells = list(cells)
    there = read_all(out, cells)
    return [cell for cell in cells if cell not in there]


def failed(out: Path, cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if failure_of(out, cell).is_file()]


def write(out: Path, cell: Cell, found: dict[str, Any]) -> None:
    """Keep a cell, and forget that it failed."""
    write_whole(path_of(out, cell), found)
    failure_of(out, cell).unlink(missing_ok=True)


def write_whole(path: Path, found: dict[str, Any]) -> None:
    with whole_file(path) as file:
        file.write(text_of({"format": FORMAT, **found}))


def text_of(found: dict[str, Any]) -> str:
    """JSON with a line for each entry: short, and a change can be read."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_failure(out: Path, cell: Cell, error: str) -> None:
    with whole_file(failure_of(out, cell)) as file:
        file.write(text_of({"cell": cell.name, "error": error}))


def read(path: Path) -> dict[str, Any]:
    """What `write` wrote."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise OfframpError(f"{path} was written by another version of the study: delete it and run it again")
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, OfframpError):
            raise
        raise OfframpError(f"{path} is no cell of the study ({one_line(error)}): delete it and run it again") from error
    return found


def read_all(out: Path, cells: Iterable[Cell]) -> dict[Cell, dict[str, Any]]:
    """Every cell that is there, and was trained as it would be now."""
    found = {cell: read(path) for cell in cells if (path := path_of(out, cell)).is_file()}
    return {cell: one for cell, one in found.items() if is_as_asked(cell, one)}


def is_as_asked(cell: Cell, found: dict[str, Any]) -> bool:
    """Whether its learning rate and its pooling are those that the study has now."""
    if cell.backbone not in BACKBONES:
        return True
    backbone, settings = BACKBONES[cell.backbone], found["settings"]
    asked = schedule_of(cell, backbone, TASKS[cell.task])["learning_rate"]
    same_rate = math.isclose(settings["recipe"]["schedule"]["learning_rate"], asked)
    return same_rate and settings["load"]["pooling"] == backbone.pooling
