"""`offramp add-exits`: a fine-tuned classifier, kept as it is, with exits and a calibrated policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from offramp.cli.app import app
from offramp.cli.engine_options import Device
from offramp.cli.task_options import (
    PANEL,
    Data,
    DataDir,
    DevData,
    LabelColumn,
    PairColumn,
    SplitSeed,
    TaskName,
    TextColumn,
)
from offramp.errors import Interrupted, OfframpError

EXAMPLES = """
Examples:

  offramp add-exits models/sentiment --data reviews.csv --text review --label verdict --out runs/sentiment

  offramp add-exits models/sentiment --data reviews.csv --max-loss 0.02 --confidence 0.9 --out runs/sentiment

  offramp add-exits textattack/bert-base-uncased-SST-2 --task sst-2 --data-dir glue --out runs/sst2

  offramp add-exits models/sentiment --data unlabelled.csv --consistency --out runs/sentiment

  offramp add-exits models/similarity --data pairs.csv --tolerance 0.2 --out runs/similarity
"""

PROMISE = "What may be lost"
TRAINING = "How the exits learn"


def _promise(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PROMISE)


def _training(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=TRAINING, **more)


@app.command("add-exits", epilog=EXAMPLES)
def add_exits_command(
    model: Annotated[
        str, typer.Argument(help="Folder or hub name of a BERT, RoBERTa or ALBERT for sequence classification.")
    ],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Data = None,
    dev: DevData = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="The data's labels, separated by commas, in the order of the classifier's outputs; "
            "default: matched by name, or by number.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    dev_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the rows to hold out and calibrate on (0.5), without --dev.", rich_help_panel=PANEL
        ),
    ] = None,
    split_seed: SplitSeed = None,
    max_loss: Annotated[float, _promise("As a share: 0.01 is a point of accuracy.")] = 0.01,
    confidence: Annotated[float, _promise("How sure to be that no more is lost.")] = 0.95,
    consistency: Annotated[
        bool, _promise("Limit how many answers differ from the classifier's: needs no labels.", "--consistency")
    ] = False,
    metric: Annotated[
        str | None, _promise("Whose loss is limited: accuracy or f1; default: the task's own, where it can be.")
    ] = None,
    tolerance: Annotated[
        float | None, _promise("Where the answer is a number: how far it may be from the classifier's.")
    ] = None,
    exit_layers: Annotated[str | None, _training("Layers to have exits, such as 3,6,9; default: all.")] = None,
    epochs: Annotated[int | None, _training("Times over what the classifier made of the rows (10).")] = None,
    learning_rate: Annotated[float | None, _training("Its peak (0.001).")] = None,
    batch_size: Annotated[int | None, _training("Rows a step (64).")] = None,
    max_length: Annotated[
        int | None, _training("Cut texts to so many tokens; default: all that the classifier takes.")
    ] = None,
    seed: Annotated[int, _training("Of the order of the rows.", min=0)] = 42,
    device: Device = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out when done.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, on one line.")] = False,
) -> None:
    """Give a fine-tuned classifier exits: it stays as it is, they learn from it, and what they may lose is certified.

    The rows should be ones that the classifier was not fine-tuned on: part of them trains the exits, on the others
    (or on --dev) a policy is calibrated. At full depth the new folder answers as the classifier does, to the bit.
    """
    from offramp.adding_exits.run import add_exits
    from offramp.adding_exits.summary import show

    rows: dict[str, Any] = {"data_dir": data_dir, "data": data, "dev": dev, "text": text}
    rows |= {"text_pair": text_pair, "label": label, "dev_share": dev_share, "split_seed": split_seed}
    rows["labels"] = labels.split(",") if labels else None
    promise: dict[str, Any] = {
        "max_loss": max_loss,
        "confidence": confidence,
        "consistency": consistency,
        "metric": metric,
    }
    schedule: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size}
    try:
        added = add_exits(
            model,
            out,
            task,
            **rows,
            **promise,
            **schedule,
            tolerance=tolerance,
            exit_layers=_layers(exit_layers),
            max_length=max_length,
            seed=seed,
            device=device,
            overwrite=overwrite,
            quiet=quiet,
        )
    except KeyboardInterrupt:
        raise Interrupted("stopped: nothing was written") from None
    if as_json:
        typer.echo(json.dumps(added.to_json(), ensure_ascii=False))
    else:
        show(added, Console(highlight=False))


def _layers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(layer) for layer in text.split(",")]
    except ValueError as error:
        raise OfframpError(f"--exit-layers {text}: write layers, such as 3,6,9") from error
