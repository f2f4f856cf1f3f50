"""The application, and the commands, which register themselves with it.

A command's file is imported with all others, for any of them and for `--help`: what takes long to import (torch,
transformers, and most of offramp) is imported inside the command.
"""

from __future__ import annotations

from pathlib import Path

import typer

from offramp.discovery import import_all

app = typer.Typer(
    name="offramp",
    help="Transformer encoders that stop computing once they know the answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def offramp() -> None:
    """Transformer encoders that stop computing once they know the answer."""


import_all(__package__, [str(Path(__file__).parent)])
