"""The one exception for mistakes a user can mend."""

from __future__ import annotations


class OfframpError(ValueError):
    """Wrong input: one line that says what is wrong, where, and what to do about it."""
