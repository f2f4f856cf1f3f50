"""Find the files of a package, so that a new policy or recipe is one new file and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules


def import_all(package: str, path: Sequence[str]) -> None:
    """Import every module of a package; what they define registers itself."""
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")
