"""The `offramp` command. One file a command; every file here is found by itself."""

from __future__ import annotations

import logging
import sys

import typer
from transformers.utils import logging as transformers_logging

from offramp.cli.app import app
from offramp.discovery import import_all
from offramp.errors import Interrupted, OfframpError, one_line

import_all(__name__, __path__)

INTERRUPTED = 130
"""The exit status of a command that was stopped by Ctrl-C."""


def main() -> None:
    """Run a command; a mistake of the user's is one line on stderr and exit status 2, never a traceback."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    transformers_logging.disable_progress_bar()  # one for each file read and written; ours say more
    try:
        app()
    except OfframpError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # a full disk, a folder where a file should be
        typer.echo(f"error: {error.filename or 'output'}: {error.strerror or one_line(error)}", err=True)
        sys.exit(2)
    except Interrupted as stopped:
        typer.echo(str(stopped), err=True)
        sys.exit(INTERRUPTED)
