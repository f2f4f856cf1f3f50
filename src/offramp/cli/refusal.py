"""Options that mean nothing where they are given."""

from __future__ import annotations

from offramp.errors import OfframpError


def refuse(why: str, **options: object) -> None:
    """An option that would be ignored is a mistake."""
    for name, value in options.items():
        if value is not None:
            raise OfframpError(f"--{name.replace('_', '-')} {why}")
