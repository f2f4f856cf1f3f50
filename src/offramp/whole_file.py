"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from offramp.errors import OfframpError


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A text file to write, with LF endings. It takes its name once it is complete; otherwise nothing is left of it."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("w", encoding="utf-8", newline="\n")
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
