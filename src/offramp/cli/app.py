"""The application that commands register themselves with."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="offramp",
    help="Transformer encoders that stop computing once they know the answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def offramp() -> None:
    """Transformer encoders that stop computing once they know the answer."""
