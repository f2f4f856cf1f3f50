"""`offramp data`: the benchmarks' official folders, fetched through the hub."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from offramp.cli.app import app

if TYPE_CHECKING:
    from offramp.tasks.tables import Record

EXAMPLES = """
Examples:

  offramp data glue --out data/glue

  offramp data glue --out data/glue --tasks sst-2,mrpc,rte

  offramp data elue --out data/elue --tasks imdb

  offramp data squad --out data/squad --tasks 1.1
"""


@app.command(epilog=EXAMPLES)
def data(
    suite: Annotated[str, typer.Argument(help="glue, elue or squad.", metavar="SUITE")],
    out: Annotated[Path, typer.Option(help="Folder to write; each task gets its official folder in it.")],
    tasks: Annotated[
        str, typer.Option(help="Only these, with commas between them: tasks, or SQuAD's versions 1.1 and 2.0.")
    ] = "",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Fetch files again that are there.")] = False,
) -> None:
    """Fetch GLUE, ELUE or SQuAD through the Hugging Face hub and write the official files."""
    from offramp.tasks.download import download

    columns = (SpinnerColumn(), TextColumn("{task.description}  {task.completed:,.0f} rows"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # a pipe gets what is said, a terminal gets it above the bar
        disable=not console.is_terminal,
    ) as progress:

        def watch(rows: Iterator[Record], what: str) -> Iterator[Record]:
            return iter(progress.track(rows, description=what))

        names = [name.strip() for name in tasks.split(",") if name.strip()]
        download(suite.lower(), out, names, overwrite=overwrite, say=typer.echo, watch=watch)
