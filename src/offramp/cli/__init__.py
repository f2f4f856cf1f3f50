"""The `offramp` command. One file a command; every file here is found by itself."""

from __future__ import annotations

import sys

from offramp.cli.ctrl_c import INTERRUPTED, STOPPED, ctrl_c_in_torch, leave_at_once
from offramp.errors import Interrupted, OfframpError, one_line


def main() -> None:
    """The whole process: a command that was stopped ends it there and then, see `leave_at_once`."""
    try:
        run_command()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            leave_at_once(INTERRUPTED)
        raise


def run_command() -> None:
    """Run a command; a mistake of the user's is one line on stderr and exit status 2, never a traceback."""
    try:
        with ctrl_c_in_torch():
            _run()
    except OfframpError as error:
        _end(f"error: {error}", 2)
    except OSError as error:  # a full disk, a folder where a file should be
        _end(f"error: {error.filename or 'output'}: {error.strerror or one_line(error)}", 2)
    except Interrupted as stopped:
        _end(str(stopped), INTERRUPTED)
    except KeyboardInterrupt:  # before the command began
        _end(STOPPED, INTERRUPTED)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # Typer's, which says nothing
            _end(STOPPED, INTERRUPTED)
        raise


def _run() -> None:
    """What takes time to import is imported here, where Ctrl-C is heeded."""
    import logging

    from offramp.after_import import after_import
    from offramp.cli.app import app

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    after_import("transformers", _without_bars)
    app()


def _without_bars() -> None:
    """Transformers shows one for each file that is read and written; ours say more."""
    from transformers.utils import logging

    logging.disable_progress_bar()


def _end(line: str, status: int) -> None:
    print(line, file=sys.stderr)
    sys.exit(status)
