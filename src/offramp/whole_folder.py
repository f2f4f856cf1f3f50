"""Folders that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from offramp.errors import OfframpError


def check_destination(destination: Path, overwrite: bool, *, sign: str, kind: str) -> None:
    """Refuse to write over what is not to be replaced: only a folder with the file `sign` in it is of this `kind`."""
    if destination.exists() and not destination.is_dir():
        raise OfframpError(f"{destination} is a file: name a folder")
    if destination.exists() and any(destination.iterdir()):
        if not overwrite:
            raise OfframpError(f"{destination} exists and is not empty: name another folder, or say --overwrite")
        if not (destination / sign).is_file():
            raise OfframpError(f"{destination} is not {kind}: nothing in it will be overwritten")


def make_writable(folder: Path, otherwise: str) -> None:
    """Before anything is computed that is to be written there; `otherwise` says what to do where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OfframpError(f"{folder} cannot be made a folder ({error.strerror}): {otherwise}") from error
    if not os.access(folder, os.W_OK):
        raise OfframpError(f"{folder} cannot be written to: {otherwise}")


@contextmanager
def whole_folder(destination: Path) -> Iterator[Path]:
    """A folder to write into. It takes its name once it is complete; otherwise nothing is left of it."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OfframpError(f"{destination.parent} cannot be made ({error.strerror})") from error
    try:
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}-") as scratch:
            written = Path(scratch) / "new"
            written.mkdir()
            yield written
            _swap(written, destination, Path(scratch) / "old")
    except OSError as error:
        raise OfframpError(f"{destination} could not be written ({error.strerror or error})") from error


def let_weights_be_read(folder: Path) -> None:
    """By whoever may read the configuration beside them: safetensors leaves them to their owner alone, and a server
    often is somebody else.
    """
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):
        file.chmod(mode)


def _swap(written: Path, destination: Path, aside: Path) -> None:
    """Put the new folder in its place; if that fails, the old one is back where it was."""
    if not destination.exists():
        written.rename(destination)
        return
    destination.rename(aside)
    try:
        written.rename(destination)
    except OSError:
        aside.rename(destination)
        raise
