"""JSON files read back: an object, each value of the kind that is declared, or what is wrong in a few words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Kind = TypeVar("Kind")

SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
    bool: ((bool,), "true or false"),
    NoneType: ((NoneType,), "null"),
}
"""What JSON may hold for a kind, and what it is called."""


def read_object(path: Path) -> dict[str, Any]:
    """The object in a file. Whatever else is in it is a ValueError; a file that cannot be read is an OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("values too deep in each other") from error
    if not isinstance(data, dict):
        raise ValueError(f"{_called(data)}, and no object")
    return data


def typed(kind: type[Kind] | Any, value: Any, name: str = "") -> Any:
    """A value from JSON as a declared kind: numbers, texts, lists, mappings, and dataclasses or named tuples of these.

    What does not fit is a ValueError that names the place.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        return _first_that_fits(inner, value, name)
    if origin is Literal:
        return _fitting(value in inner if isinstance(value, str) else False, value, name, " or ".join(map(repr, inner)))
    if origin in (list, tuple):
        _fitting(isinstance(value, list), value, name, "a list")
        return origin(typed(inner[0], one, f"{name}[{place}]") for place, one in enumerate(value))
    if origin in (dict, Mapping):
        _fitting(isinstance(value, dict), value, name, "an object")
        return {_key(inner[0], key, name): typed(inner[1], one, _below(name, key)) for key, one in value.items()}
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return _made(kind, value, name)
    allowed, called = SCALARS.get(kind, ((), "something else"))
    fits = isinstance(value, allowed) and (kind is bool or not isinstance(value, bool))
    return _fitting(fits, value, name, called)


def _made(kind: Any, value: Any, name: str) -> Any:
    _fitting(isinstance(value, dict), value, name, "an object")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else kind._fields
    if unknown := sorted(value.keys() - set(names)):
        raise ValueError(f"{_below(name, unknown[0])} is not known")
    given = {key: typed(hints[key], one, _below(name, key)) for key, one in value.items()}
    try:
        return kind(**given)
    except TypeError as error:
        missing = [one for one in names if one not in given]
        raise ValueError(f"{name or 'it'} needs {', '.join(missing)}") from error


def _first_that_fits(kinds: tuple[Any, ...], value: Any, name: str) -> Any:
    wrong = ValueError()
    for kind in sorted(kinds, key=lambda kind: kind is NoneType):  # what is wrong with it is not that it is no null
        try:
            return typed(kind, value, name)
        except ValueError as error:
            wrong = error if not str(wrong) else wrong
    raise wrong


def _key(kind: Any, key: str, name: str) -> Any:
    """JSON's keys are texts."""
    if kind is not int:
        return key
    _fitting(key.isascii() and key.lstrip("-").isdigit(), key, _below(name, key), "a whole number")
    return int(key)


def _fitting(fits: bool, value: Any, name: str, wanted: str) -> Any:
    if not fits:
        raise ValueError(f"{name or 'it'} is {_called(value)}: expected {wanted}")
    return value


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if name else str(key)


def _called(value: Any) -> str:
    return "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else f"{value!r:.40}"
