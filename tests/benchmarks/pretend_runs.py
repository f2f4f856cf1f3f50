"""Stand-ins for trainings, to be imported by the processes of a study."""

from __future__ import annotations

import os
import time
from typing import Any

from benchmarks.study.grid import BACKBONES, TASKS, Cell, schedule_of
from benchmarks.study.workers import Run


def make_run() -> Run:
    """Cells of seed 2 raise, those of seed 3 take their process with them, those of seed 4 take long."""
    here = {"cells": 0}

    def run(cell: Cell) -> dict[str, Any]:
        here["cells"] += 1
        if cell.seed == 2:
            raise ValueError("made to fail")
        if cell.seed == 3:
            os._exit(7)
        if cell.seed == 4:
            time.sleep(600)
        return {"process": os.getpid(), "cells": here["cells"], **made(cell)}

    return run


def made(cell: Cell) -> dict[str, Any]:
    """What the study looks at in a cell."""
    return {"metric": "accuracy", "exits": [{"score": 0.5}], "settings": settings_as_asked(cell)}


def settings_as_asked(cell: Cell) -> dict[str, Any]:
    """What the study asks of a cell's training."""
    backbone = BACKBONES[cell.backbone]
    schedule = schedule_of(cell, backbone, TASKS[cell.task])
    return {"recipe": {"schedule": schedule}, "load": {"pooling": backbone.pooling}}
