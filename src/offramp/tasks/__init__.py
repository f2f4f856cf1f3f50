"""Questions asked of texts: GLUE, ELUE, SQuAD and the user's own files; their metrics and submission files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.tasks.official import benchmark_task
from offramp.tasks.own_data import own_task
from offramp.tasks.squad import is_squad, squad_task
from offramp.tasks.task import Examples, Task

__all__ = ["Examples", "Task", "benchmark_task", "own_task", "squad_task", "task"]


def task(name: str | None = None, *, data_dir: str | Path | None = None, **own: Any) -> Task:
    """A task: `task("sst-2", data_dir="glue")` of GLUE or ELUE, or `task(data="mine.csv")` on a user's own data.

    A benchmark without `data_dir` comes from the hub. Options for own data are those of `own_task`. Questions on texts
    are `task("squad", data_dir="squad")`, or files in SQuAD's format: `task("squad", data="train.json",
    dev="dev.json")`. `task(**old.record)` makes a task again.
    """
    if is_squad(name, own):
        return squad_task(data_dir, name=str(name), **own)
    if any(own.get(place) is not None for place in ("data", "dev", "test")):
        if data_dir is not None:
            raise OfframpError("data_dir is for GLUE and ELUE tasks, data for own files: expected one of them")
        return own_task(name=name, **own)
    unused = [option for option, value in own.items() if value is not None]
    if unused:
        raise OfframpError(f"{unused[0]} is for own data: give a file or a hub data set, too (--data)")
    if name is None:
        raise OfframpError("no task: name one of GLUE or ELUE, squad or squad2 (--task), or give a file (--data)")
    return benchmark_task(name, data_dir)
