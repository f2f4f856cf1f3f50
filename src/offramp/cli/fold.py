"""`offramp fold`: constant gates into the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from offramp.cli.app import app
from offramp.cli.task_options import DataDir, PairColumn, TaskName, TextColumn, task_from_options
from offramp.errors import OfframpError

if TYPE_CHECKING:
    from offramp.interop.dialect import Model

EXAMPLES = """
Examples:

  offramp fold runs/gated runs/folded

  offramp fold runs/gated runs/folded --data traffic.csv --text review --rows 5000
"""


@app.command("fold", epilog=EXAMPLES)
def fold_command(
    model: Annotated[str, typer.Argument(help="Model folder with gates.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    task: TaskName = None,
    data_dir: DataDir = None,
    data: Annotated[
        str | None, typer.Option(help="A file of texts, which need no labels, or of questions: calibrate on these.")
    ] = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    rows: Annotated[
        int, typer.Option(help="Calibration rows; the model's training rows unless a task is named.")
    ] = 2000,
    constant: Annotated[
        float, typer.Option(help="A gate is constant if it differs on no more than this share of the rows.")
    ] = 0.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing model folder.")] = False,
) -> None:
    """Delete what gates always skip, and no longer ask gates that always keep: a smaller, faster model."""
    from offramp.folded_folder import fold as fold_folder
    from offramp.interop import load

    if data is not None and task is not None:
        raise OfframpError("rows of a task (--task) or of a file (--data): one of the two")
    chosen = task_from_options(task, data_dir)
    texts = None if data is None else texts_in(data, load(model), text, text_pair)
    folded = fold_folder(model, out, chosen, texts=texts, rows=rows, constant=constant, overwrite=overwrite)
    console = Console(soft_wrap=True, highlight=False)
    console.print(what_is_left(folded))
    console.print(f"{out}: {sum(p.numel() for p in folded.parameters()) / 1e6:.1f} M parameters")


def texts_in(data: str, model: Model, text: str | None, text_pair: str | None) -> list[Any]:
    """The texts of a file, as `offramp predict` reads them."""
    from offramp.folded_folder import texts_of
    from offramp.prediction.inputs import table_texts
    from offramp.tasks.squad import read_squad
    from offramp.tasks.tables import read_table

    if model.objective.name == "span":
        return texts_of(read_squad(data))
    return list(table_texts(read_table(data), model, text, text_pair))


def what_is_left(model: Model) -> Table:
    """Heads and neurons of every layer, and how many of their gates still depend on the input."""
    config, gates = model.config.backbone_config, model.gates
    assert gates is not None
    assert gates.settings.folded is not None
    table = Table(title="Left of each layer", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in ("layer", "heads", "of", "gated", "neurons", "of", "gated"):
        table.add_column(column, justify="right")
    for number, left in enumerate(gates.settings.folded, start=1):
        neurons = [left.neurons, config.intermediate_size, left.predicted_neurons * gates.block]
        cells = [number, left.heads, config.num_attention_heads, left.predicted_heads, *neurons]
        table.add_row(*map(str, cells))
    return table
