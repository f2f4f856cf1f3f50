"""Files that are there whole or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from offramp.errors import OfframpError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A text file to write, with LF endings. It takes its name once it is complete; otherwise nothing is left of it."""
    with _whole(path, "w", encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def whole_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The same for an image or an array."""
    with _whole(path, "wb") as file:
        yield file


@contextmanager
def _whole(path: Path, mode: str, **how: Any) -> Iterator[IO[Any]]:
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")  # of this writer alone: there may be others
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open(mode, **how)
    except OSError as error:
        raise OfframpError(f"{path} cannot be written ({error.strerror})") from error
    try:
        with file:
            yield file
        part.replace(path)
    except OSError as error:
        raise OfframpError(f"{path} could not be written to its end ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)
