"""Ctrl-C where Python's own way with it aborts the process: while torch is imported, and while the process ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from offramp.after_import import after_import

INTERRUPTED = 130
"""The exit status of a command that was stopped by Ctrl-C."""
STOPPED = "stopped"
"""What such a command says where it has no more to say."""


@contextmanager
def ctrl_c_in_torch() -> Iterator[None]:
    """Until torch is imported there is nothing to clean up: the process may end at once, and says so."""
    if _in_main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nohup ignores it
        signal.signal(signal.SIGINT, _stop)
        after_import("torch", _as_usual)
    try:
        yield
    finally:
        _as_usual()


def leave_at_once(status: int) -> None:
    """End the process without Python's own end, which kills threads wherever they are: in C++ code that aborts it.

    A command that was stopped may leave some behind (a library's, or one that waits for input). All else is as ever.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or its reader has gone
            stream.flush()
    os._exit(status)


def _as_usual() -> None:
    if _in_main_thread() and signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _stop(kind: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch":
            os.write(2, f"{STOPPED}\n".encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
