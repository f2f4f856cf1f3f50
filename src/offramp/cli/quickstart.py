"""`offramp quickstart`: the whole loop, from nothing to a measured speed-up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.task_options import (
    Data,
    DataDir,
    DevData,
    DevShare,
    LabelColumn,
    Metric,
    PairColumn,
    TaskName,
    TestData,
    TextColumn,
    task_from_options,
)
from offramp.quickstart.wishes import BACKBONE, EPOCHS, ROWS, Wishes

EXAMPLES = """
Examples:

  offramp quickstart --out runs/quickstart

  offramp quickstart --data reviews.csv --text review --label verdict --out runs/reviews

  offramp quickstart --task sst-2 --data-dir glue --rows 10000 --out runs/sst2
"""


@app.command("quickstart", epilog=EXAMPLES)
def quickstart_command(
    out: Annotated[Path, typer.Option(help="Folder to write; what an earlier quickstart left there is replaced.")] = (
        Path("runs/quickstart")
    ),
    backbone: Annotated[str, typer.Option(help="A model in the box, a folder or a hub name.")] = BACKBONE,
    rows: Annotated[int, typer.Option(min=1, help="To train on; of own data, at most so many in each part.")] = ROWS,
    epochs: Annotated[int, typer.Option(min=1, help="Times over the training rows.")] = EPOCHS,
    learning_rate: Annotated[
        float | None, typer.Option(help="Its peak; default: by the width of the backbone.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the reviews, of what is cut off, and of training.")] = 1,
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Data = None,
    dev: DevData = None,
    test: TestData = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    metric: Metric = None,
    dev_share: DevShare = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train a multi-exit model, calibrate it to lose at most 1 point, and measure what that saves on this machine.

    On generated reviews, which need no network, or on your own data.
    """
    own = {"dev": dev, "test": test, "text": text, "text_pair": text_pair, "label": label}
    chosen = task_from_options(task, data_dir, data, **own, metric=metric, dev_share=dev_share)
    from offramp.quickstart.run import quickstart  # the Trainer takes seconds to import: not before mistakes are found
    from offramp.quickstart.summary import show

    outcome = quickstart(out, Wishes(backbone, rows, epochs, learning_rate, seed), chosen, quiet)
    show(outcome, Console(highlight=False))
