"""Names of a package that are imported when they are first used, so that importing the package takes no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, given where each of its names lives.

    Modules of the package are found by themselves, as if it had imported them. Beside this stands the usual import,
    under `TYPE_CHECKING`, for whoever reads the code: people, editors and mypy.

    >>> __getattr__, __dir__ = lazy_names(__name__, {"Engine": "offramp.engine"})
    """

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, listed
