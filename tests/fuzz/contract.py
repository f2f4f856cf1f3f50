"""What every reader keeps to: it gives what is in a file, or refuses it in one line that names the file."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from offramp.errors import OfframpError


@dataclass(frozen=True)
class Target:
    """One reader, and the file it reads.

    Args:
        file: the file's name; the reader tells formats by it.
        read: the reader, given the file's path. It may check what it got, and fails by any error but `OfframpError`.
        seeds: files that it takes.
        beside: makes what else lies in the folder, once.
        shape: `json`, `lines` (of JSON) or `bytes`: how a file is changed so that it stays near to what is read.
        blames: what a refusal names: the `file`; something in its `folder`, where files are read together and each may
            be at fault; or `nothing`, where what is read is no file.
    """

    file: str
    read: Callable[[Path], Any]
    seeds: Callable[[], Sequence[bytes]]
    beside: Callable[[Path], Any] = lambda folder: None
    shape: Literal["json", "lines", "bytes"] = "bytes"
    blames: Literal["file", "folder", "nothing"] = "file"

    def check(self, data: bytes) -> bool:
        """Whether the file is taken. Any error but a refusal in one line that names the file is a finding."""
        path = folder_of(self) / self.file
        path.write_bytes(data)
        try:
            self.read(path)
        except OfframpError as error:
            message = str(error)
            assert "\n" not in message, f"more than one line: {message!r}"
            named = {"file": str(path), "folder": str(path.parent), "nothing": ""}[self.blames]
            assert named in message, f"{self.blames} is not named: {message!r}"
            return False
        return True


@cache
def folder_of(target: Target) -> Path:
    """A folder for a target's files, the same while this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="offramp-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target.beside(folder)
    return folder
