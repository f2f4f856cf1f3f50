"""Text files as numbered lines, plain or compressed, whatever is wrong with them said with its line."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from offramp.errors import OfframpError, one_line
from offramp.near_names import did_you_mean

LONGEST_LINE = 2**27
"""Bytes. A longer line is no row: line ends are missing, or the file is of another kind."""

COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where its name says that it is packed."""
    check_file(path)
    try:
        opened: IO[bytes] = COMPRESSIONS.get(path.suffix.lower(), open)(path, "rb")
    except OSError as error:
        raise OfframpError(f"{path} cannot be read ({error.strerror or one_line(error)})") from error
    return opened


def check_file(path: Path) -> None:
    """Say that a file is not there, and what is there in its place."""
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        raise OfframpError(f"{path} is a folder: expected a file, such as {path / names[0] if names else 'train.tsv'}")
    if not path.exists():
        no_folder = "" if path.parent.is_dir() else f", and neither does the folder {path.parent}"
        raise OfframpError(f"{path} does not exist{no_folder}{did_you_mean(path)}")


class Lines:
    r"""Lines of UTF-8 text with their endings. They end at \n alone: \r, \x85 and \u2028 can be part of a text."""

    def __init__(self, stream: IO[Any], source: str, longest: int = LONGEST_LINE) -> None:
        self.source = source
        self.longest = longest
        self.number = 0
        """Of the line last read, from 1."""
        self._lines = self._read(stream)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        text = line if isinstance(line, str) else self._decode(line)
        if "\0" in text:
            raise self.error("a NUL byte: expected text; is the file binary, or UTF-16?")
        return text.removeprefix("\ufeff") if self.number == 1 else text

    def error(self, message: str, line: int | None = None) -> OfframpError:
        return OfframpError(f"{self.source}:{line or self.number}: {message}")

    def _read(self, stream: IO[Any]) -> Iterator[str | bytes]:
        with stream:
            try:
                while line := stream.readline(self.longest + 1):
                    if len(line) > self.longest:
                        self.number += 1
                        raise self.error(f"a line of more than {self.longest >> 20} MB: are its line ends missing?")
                    yield line
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise OfframpError(
                    f"{self.source} is damaged or cut short after line {self.number} ({one_line(error)})"
                ) from error

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            utf16 = line.startswith((b"\xff\xfe", b"\xfe\xff"))
            looks = "it looks like UTF-16" if utf16 else f"byte 0x{line[error.start]:02x} at {error.start + 1}"
            raise self.error(f"not UTF-8 ({looks}): save the file as UTF-8") from error
