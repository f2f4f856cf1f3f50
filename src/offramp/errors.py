"""The one exception for mistakes a user can mend."""

from __future__ import annotations


class OfframpError(ValueError):
    """Wrong input: one line that says what is wrong, where, and what to do about it."""


def one_line(error: BaseException, limit: int = 200) -> str:
    """Another library's message, fit to be part of ours."""
    return " ".join(str(error).split())[:limit]
