"""The application, and the commands, which register themselves with it.

A command's file is imported with all others, for any of them and for `--help`: what takes long to import (torch,
transformers, and most of offramp) is imported inside the command.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

from offramp import __version__
from offramp.discovery import import_all

app = typer.Typer(
    name="offramp",
    help="Transformer encoders that stop computing once they know the answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"offramp {__version__}")
        raise typer.Exit


@app.callback()
def offramp(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Transformer encoders that stop computing once they know the answer."""


def in_paragraphs(text: str) -> str:
    """A docstring without the line ends of the source: a terminal has its own width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


import_all(__package__, [str(Path(__file__).parent)])
for _command in app.registered_commands:
    _command.help = in_paragraphs(_command.help or inspect.getdoc(_command.callback) or "")
