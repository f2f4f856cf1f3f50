"""The numbers a policy is made of: what each may be, and in what form it is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from offramp.errors import OfframpError

LARGEST = 2**63
"""Whole numbers from here on do not fit into a tensor."""


def checked(value: Any, kind: str, what: str) -> Any:
    """The value as a frozen policy holds it, if it fits the type it is declared with."""
    value = plain(value)
    wanted, fits = KINDS.get(kind, ("", lambda _: True))
    if not fits(value):
        raise OfframpError(f"{what} must be {wanted}, not {value!r}")
    return value


def plain(value: Any) -> Any:
    """Numbers as a frozen policy holds them: plain ones for NumPy's and torch's, tuples for lists and arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(plain(item) for item in value) if isinstance(value, list | tuple) else value


def is_number(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST


def all_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and len(value) > 0 and all(map(fits, value))


KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "PerLayer": ("a number, or one for each layer", lambda value: is_number(value) or all_of(is_number)(value)),
    "float": ("a number", is_number),
    "float | None": ("a number", lambda value: value is None or is_number(value)),
    "int": ("a whole number", is_whole),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": ("a word", lambda value: isinstance(value, str)),
    "tuple[int, ...]": ("a list of whole numbers", all_of(is_whole)),
    "tuple[Policy, ...]": ("a list of policies", all_of(lambda value: hasattr(value, "step"))),
}
"""What a setting may hold, by the type it is declared with: what to say, and how to tell."""
