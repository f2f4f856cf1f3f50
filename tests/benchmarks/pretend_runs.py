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
    schedule = schedule_of(cell, BACKBONES[cell.backbone], TASKS[cell.task])
    return {"metric": "accuracy", "exits": [{"score": 0.5}], "settings": {"recipe": {"schedule": schedule}}}
