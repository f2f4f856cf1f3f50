"""What may have been meant by a path that is not there."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path


def did_you_mean(path: Path) -> str:
    """A question to be put behind the path; empty where nothing beside it has a name like it."""
    if not path.parent.is_dir():
        return ""
    names = sorted(entry.name for entry in path.parent.iterdir())
    stem = path.name.split(".")[0]
    near = get_close_matches(path.name, names, 3) or [name for name in names if stem and name.startswith(stem)]
    return f": did you mean {' or '.join(str(path.with_name(name)) for name in near[:3])}?" if near else ""
