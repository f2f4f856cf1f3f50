"""Something to be done once a library is imported, by whomever, without importing it now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def after_import(library: str, action: Callable[[], object]) -> None:
    """Call `action` right after the library's first import; now, if that has been."""
    if library in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(library, action))


class _Watch(MetaPathFinder):
    """Finds the library where all others find it, and waits for it to run."""

    def __init__(self, library: str, action: Callable[[], object]) -> None:
        self.library = library
        self.action = action
        self.asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.library or self.asking:
            return None
        self.asking = True
        try:
            spec = find_spec(fullname)
        finally:
            self.asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.action()

            spec.loader.exec_module = execute_and_act  # type: ignore[method-assign]
        return spec
