"""Find the files of a package, so that a new policy or recipe is one new file and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules


def import_all(package: str, path: Sequence[str]) -> None:
    """Import every module of a package; what they define registers itself."""
    for module in iter_modules(path):
        import_module(f"{package}.{module.name}")


def classes_below(base: str, folder: Path) -> list[str]:
    """The classes in a folder's files that are made from one, read and not run: importing them may take long."""
    bases = {
        node.name: {parent.id for parent in node.bases if isinstance(parent, ast.Name)}
        for path in folder.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    found = {base}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return sorted(found - {base})
