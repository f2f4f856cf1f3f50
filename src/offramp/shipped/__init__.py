"""Models in the box: folders that come with the package and are known by name, so that nothing need be downloaded."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from offramp.errors import OfframpError

BOX = Path(__file__).parent
SIGN = "config.json"
PREFIX = "offramp-"
"""What their names begin with; no hub name without an owner does."""


def shipped_names() -> tuple[str, ...]:
    return tuple(sorted(folder.name for folder in BOX.iterdir() if (folder / SIGN).is_file()))


def is_shipped(path_or_name: str | Path) -> bool:
    """Whether this names a model in the box; a local folder of the same name counts first."""
    name = str(path_or_name)
    return name in shipped_names() and not Path(name).is_dir()


def resolve(path_or_name: str | Path) -> str | Path:
    """The folder of a model in the box; any other folder or name as it is. A name that is nearly one is refused.

    >>> AutoModel.from_pretrained(offramp.shipped.resolve("offramp-mini"))
    """
    if is_shipped(path_or_name):
        return BOX / str(path_or_name)
    _refuse_nearly(str(path_or_name))
    return path_or_name


def _refuse_nearly(name: str) -> None:
    """The hub has no such name either, and may take long to say so."""
    known = shipped_names()
    like_one = name.lower().startswith(PREFIX) or get_close_matches(name.lower(), known, cutoff=0.85)
    if like_one and "/" not in name and not _is_there(name):
        there = f"offramp comes with {', '.join(known)}" if known else "this copy of offramp comes without models"
        raise OfframpError(f"there is no folder {name}, and no model of that name in the box: {there}")


def _is_there(name: str) -> bool:
    """A folder, or the prefix of a TF checkpoint."""
    return Path(name).exists() or Path(f"{name}.index").exists()


def results_home(path_or_name: str | Path) -> Path:
    """Where what is found out about a model is written: its own folder or, where that is not the user's, one here."""
    path = Path(path_or_name)
    if is_shipped(path_or_name) or is_in_the_box(path):
        return Path(f"{path.name}-results")  # a folder of its name would be taken for the model itself
    return path if path.is_dir() else Path(path.name)


def is_in_the_box(folder: Path) -> bool:
    return folder.resolve().is_relative_to(BOX.resolve())


def refuse_to_change(folder: Path) -> None:
    """What is installed stays as it is, for everybody who uses it."""
    if is_in_the_box(folder):
        raise OfframpError(
            f"{folder.name} comes with offramp and stays as it is: make a copy of your own first, as in "
            f"offramp convert {folder.name} my-{folder.name.removeprefix(PREFIX)}"
        )
