"""The one exception for mistakes a user can mend, and the one for a run that was stopped."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class OfframpError(ValueError):
    """Wrong input: one line that says what is wrong, where, and what to do about it."""

    def __init__(self, message: str) -> None:
        """What a message quotes from a file may hold line ends: they are shown, and not made."""
        super().__init__(message.replace("\n", "\\n").replace("\r", "\\r"))


class Interrupted(Exception):
    """Stopped by the user's wish: how far it came, and how to go on."""


def one_line(error: BaseException, limit: int = 200) -> str:
    """Another library's message, fit to be part of ours."""
    return " ".join(str(error).split())[:limit]


def needs(module: str, extra: str) -> ModuleType:
    """Import a library that only some commands use; where it is missing, say what brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise OfframpError(f"this needs {module.split('.')[0]}: pip install 'offramp[{extra}]'") from error
