"""Answers to files: whole rows only, whatever interrupts the writing."""

from __future__ import annotations

import csv
import json
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import IO, Any

from offramp.errors import OfframpError, needs

MOST_DIGITS = 38
"""Of a decimal number in Arrow's usual form."""

Answers = Sequence[Mapping[str, Any]]
ROW_GROUP = 16384
"""Rows of Parquet written together: thousands of small groups would make a large file, and its table of contents
would grow in memory."""


class Writer(ABC):
    """Writes rows, some at a time. A stop waits for the end of a write: rows are counted, and stand there whole."""

    def __init__(self, stream: IO[bytes], name: str, columns: Sequence[str]) -> None:
        self.stream = stream
        self.name = name
        self.columns = list(columns)
        self.written = 0

    def write(self, rows: Answers) -> None:
        with uninterrupted(), self._naming_the_file():
            self._write(rows)
            self.written += len(rows)

    def close(self) -> None:
        with uninterrupted(), self._naming_the_file():
            self._finish()
            if self.name:
                self.stream.close()

    @abstractmethod
    def _write(self, rows: Answers) -> None: ...

    def _finish(self) -> None:
        """Write what a format has at its end."""

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:  # whoever read our output has seen enough
            raise
        except OSError as error:
            why = error.strerror or error
            raise OfframpError(f"{self.name or 'standard output'} could not be written to its end ({why})") from error


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C, or SIGTERM, waits until the block is left; a second one does not."""
    asked: list[int] = []

    def remember(kind: int, frame: FrameType | None) -> None:
        if asked:
            asked.clear()
            raise KeyboardInterrupt
        asked.append(kind)

    try:
        with on_stop(remember):
            yield
    finally:
        if asked:
            signal.raise_signal(asked[0])


@contextmanager
def heeding_ctrl_c() -> Iterator[Callable[[], None]]:
    """Ctrl-C or SIGTERM raises KeyboardInterrupt; and so does the function given, where Python dropped that one.

    It does so with whatever is raised in a destructor, and one may be running at any time.
    """
    asked: list[int] = []

    def stop(kind: int, frame: FrameType | None) -> None:
        asked.append(kind)
        raise KeyboardInterrupt

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    with on_stop(stop):
        yield check


@contextmanager
def on_stop(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """A handler of Ctrl-C and SIGTERM for a while; in the main thread, which alone is told of signals.

    What nohup ignores stays ignored.
    """
    told = threading.current_thread() is threading.main_thread()
    kinds = [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) is not signal.SIG_IGN]
    before = {kind: signal.signal(kind, handler) for kind in kinds} if told else {}
    try:
        yield
    finally:
        for kind, usual in before.items():
            signal.signal(kind, usual)


class LineWriter(Writer):
    """JSON lines, CSV or TSV. Unbuffered, and each write is whole lines: a kill between writes leaves whole lines.

    `begun` is how many bytes of an earlier run the stream stands behind.
    """

    def __init__(self, stream: IO[bytes], name: str, columns: Sequence[str], format: str, begun: int = 0) -> None:
        super().__init__(stream, name, columns)
        self.format = format
        self.size = begun
        if format != "jsonl" and not begun:
            with self._naming_the_file():
                self._put(self.lines([self.columns], format))

    def _write(self, rows: Answers) -> None:
        if self.format == "jsonl":
            self._put("".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows))
        else:
            self._put(self.lines([[row[column] for column in self.columns] for row in rows], self.format))

    @staticmethod
    def lines(rows: Sequence[Sequence[Any]], format: str) -> str:
        """Rows of cells as CSV or TSV."""
        cells = [[_cell(value) for value in row] for row in rows]
        if format == "tsv":  # as GLUE's files: tabs part cells, line ends rows, and nothing is quoted
            return "".join("\t".join(cell.translate(NO_TSV) for cell in row) + "\n" for row in cells)
        lines: list[str] = []
        csv.writer(SimpleNamespace(write=lines.append)).writerows(cells)  # ends lines by \r\n, and so quotes either
        return "".join(line.removesuffix("\r\n") + "\n" for line in lines)

    def _put(self, text: str) -> None:
        """All of it; where there is no room for all, none."""
        data = text.encode("utf-8", "backslashreplace")  # half a surrogate pair, which JSON can escape, stays escaped
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self.stream.write(rest) :]
            self.stream.flush()
        except OSError:
            if self.name:
                self.stream.truncate(self.size)
            raise
        self.size += len(data)


NO_TSV = str.maketrans("\t\r\n", "   ")


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


class ParquetWriter(Writer):
    """A Parquet file, readable once it is closed; an interrupted run closes it, too.

    A column's kind is that of its first rows: text where they are of several kinds, or empty. What does not fit it
    later is refused, and never made to.
    """

    def __init__(self, stream: IO[bytes], name: str, columns: Sequence[str]) -> None:
        super().__init__(stream, name, columns)
        self.arrow = needs("pyarrow", "data")
        self.parquet = needs("pyarrow.parquet", "data")
        self.kinds: dict[str, Any] = {"score": self.arrow.float64(), "exit_layer": self.arrow.int64()}
        self.waiting: list[Any] = []
        self.file: Any = None

    def _write(self, rows: Answers) -> None:
        arrays = [self._array(column, [row[column] for row in rows]) for column in self.columns]
        self.waiting.append(self.arrow.Table.from_arrays(arrays, self.columns))
        if sum(map(len, self.waiting)) >= ROW_GROUP:
            self._write_group()

    def _write_group(self) -> None:
        group = self.arrow.concat_tables(self.waiting)
        self.waiting = []
        if self.file is None:
            self.file = self.parquet.ParquetWriter(self.stream, group.schema)
        self.file.write_table(group)

    def _array(self, column: str, values: list[Any]) -> Any:
        kind = self.kinds.get(column)
        if kind == self.arrow.string():
            return self._text(values)
        try:
            array = self.arrow.array(values)  # of the kind that the values have
            if kind is not None:
                return self._fitting(array, kind)
        except (self.arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            if kind is not None:
                raise OfframpError(
                    f"{self.name}: {column!r} was {kind} at first, and then was not: write .jsonl or .csv"
                ) from error
            array = self._text(values)
        if self.arrow.types.is_null(array.type):
            array = self._text(values)
        if self.arrow.types.is_decimal(array.type):  # later ones may be larger
            array = array.cast(self.arrow.decimal128(MOST_DIGITS, array.type.scale))
        self.kinds[column] = array.type
        return array

    def _fitting(self, array: Any, kind: Any) -> Any:
        """The same values as this kind: numbers as other numbers where nothing is lost, and nothing else as another."""
        types = self.arrow.types
        is_number = (types.is_integer, types.is_floating, types.is_decimal)
        numbers = all(any(fits(one) for fits in is_number) for one in (array.type, kind))
        if array.type == kind or numbers or types.is_null(array.type):
            return array.cast(kind, safe=True)
        raise ValueError(f"{array.type} is not {kind}")

    def _text(self, values: list[Any]) -> Any:
        texts = [None if value is None else _cell(value) for value in values]
        whole = [text and text.encode("utf-8", "backslashreplace").decode() for text in texts]
        return self.arrow.array(whole, self.arrow.string())

    def _finish(self) -> None:
        if self.file is None:
            self._write([])  # a file without rows has columns, too
        if self.waiting:
            self._write_group()
        self.file.close()


FORMATS = ("jsonl", "csv", "tsv", "parquet")


def output_format(path: Path) -> str:
    name = {"ndjson": "jsonl", "json": "jsonl"}.get(path.suffix.lower().lstrip("."), path.suffix.lower().lstrip("."))
    if name not in FORMATS:
        raise OfframpError(f"{path}: answers are written as .jsonl, .csv, .tsv or .parquet")
    return name


def open_writer(path: Path | None, columns: Sequence[str], overwrite: bool = False) -> Writer:
    """A writer for a file, by its name, or of JSON lines for standard output."""
    if path is None:
        return LineWriter(getattr(sys.stdout.buffer, "raw", sys.stdout.buffer), "", columns, "jsonl")
    format = output_format(path)
    if path.is_dir():
        raise OfframpError(f"{path} is a folder: name a file, such as {path / 'answers.jsonl'}")
    if path.exists() and not overwrite:
        raise OfframpError(f"{path} exists: name another file, or say --overwrite")
    if format == "parquet":
        needs("pyarrow.parquet", "data")  # or the old file would be gone before it is missed
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = path.open("wb", buffering=0)
    except OSError as error:
        raise OfframpError(f"{path} cannot be written ({error.strerror})") from error
    if format == "parquet":
        return ParquetWriter(stream, str(path), columns)
    return LineWriter(stream, str(path), columns, format)
