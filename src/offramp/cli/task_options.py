"""The options that say which task: a benchmark and its folder, or a user's own data. Commands share them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.errors import OfframpError

if TYPE_CHECKING:
    from offramp.tasks import Task

PANEL = "Which task"


def _option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL)


TaskName = Annotated[
    str | None, _option("A task of GLUE or ELUE (sst-2, rte, elue/mrpc …), squad or squad2.", "--task")
]
DataDir = Annotated[Path | None, _option("Folder with the task's official files, or the folder above it.")]
Data = Annotated[
    str | None,
    _option("Own data: a CSV, TSV, JSONL or Parquet file, a folder with train, dev and test files, or a hub set."),
]
DevData = Annotated[str | None, _option("Own dev rows; default: cut off from the training rows.", "--dev")]
TestData = Annotated[str | None, _option("Own test rows.", "--test")]
TextColumn = Annotated[str | None, _option("Column with the text.", "--text")]
PairColumn = Annotated[str | None, _option("Column with the second text of a pair.", "--text-pair")]
LabelColumn = Annotated[str | None, _option("Column with the label.", "--label")]
Regression = Annotated[bool | None, _option("Labels are numbers to be estimated.", "--regression/--classification")]
Metric = Annotated[str | None, _option("Score own data by accuracy, f1, macro_f1, matthews, pearson or spearman.")]
DevShare = Annotated[float | None, _option("Share of the training rows to cut off for a dev set (0.1).")]
SplitSeed = Annotated[int | None, _option("Which rows are cut off (0).")]


def task_from_options(
    task: str | None = None, data_dir: Path | None = None, data: str | None = None, **own: Any
) -> Task | None:
    """The task the options name; None where no option was given. `own` are options of `own_task`."""
    own = {name: value for name, value in own.items() if value is not None}
    if task is None and data_dir is None and data is None and not own:
        return None
    if task is None and data_dir is not None:
        raise OfframpError(f"--data-dir {data_dir} of which task? Name it, as in --task sst-2")
    from offramp.tasks import task as make_task

    return make_task(task, data_dir=data_dir, data=data, **own)
