"""After `import offramp`, Hugging Face's Auto classes and pipelines open our folders.

They have to be told so, and that takes importing them and torch. It is done once transformers is imported: whoever
asks an Auto class has done so, and whoever only wants to see `offramp --help` has not.
"""

from __future__ import annotations

import sys
from importlib import import_module

from offramp import after_import


def introduce_ourselves() -> None:
    """Tell the Auto classes, now or once they are there."""
    after_import.after_import("transformers", _introduce)


def _introduce() -> None:
    if not _is_our_doing():
        import_module("offramp.models")  # which tells them


def _is_our_doing() -> bool:
    """Whether transformers is imported by a module of ours: it needs `offramp.models` itself, and is half imported."""
    frame = sys._getframe()
    ours = {__name__, after_import.__name__}
    while (before := frame.f_back) is not None:
        frame = before
        name = str(frame.f_globals.get("__name__"))
        if name.startswith("offramp.") and name not in ours:
            return True
    return False
