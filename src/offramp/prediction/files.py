"""Answers to files: whole rows only, whatever interrupts the writing."""

from __future__ import annotations

import csv
import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from offramp.errors import OfframpError, needs

Answers = Sequence[Mapping[str, Any]]


class Writer(ABC):
    """Writes rows, some at a time. What `write` has returned from is on its way to the disk, and whole."""

    @abstractmethod
    def write(self, rows: Answers) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class LineWriter(Writer):
    """JSON lines, CSV or TSV. Unbuffered, and each write is whole lines: a kill between writes leaves whole lines."""

    def __init__(self, stream: IO[bytes], format: str, columns: Sequence[str]) -> None:
        self.stream = stream
        self.format = format
        self.columns = list(columns)
        if format != "jsonl":
            self.stream.write(self._lines([self.columns]))

    def write(self, rows: Answers) -> None:
        if self.format == "jsonl":
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            self.stream.write(text.encode())
        else:
            self.stream.write(self._lines([[row[column] for column in self.columns] for row in rows]))
        self.stream.flush()

    def _lines(self, rows: Sequence[Sequence[Any]]) -> bytes:
        if self.format == "tsv":  # as GLUE's files: tabs part cells, and nothing is quoted
            cells = ([" ".join(_cell(value).split()) for value in row] for row in rows)
            return "".join("\t".join(row) + "\n" for row in cells).encode()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
        return text.getvalue().encode()

    def close(self) -> None:
        if self.stream is not sys.stdout.buffer:
            self.stream.close()


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


class ParquetWriter(Writer):
    """A Parquet file, readable once it is closed; an interrupted run closes it, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.arrow = needs("pyarrow", "data")
        self.parquet = needs("pyarrow.parquet", "data")
        self.file: Any = None

    def write(self, rows: Answers) -> None:
        table = self.arrow.Table.from_pylist(list(rows), schema=self.file.schema if self.file else None)
        if self.file is None:
            self.file = self.parquet.ParquetWriter(self.path, table.schema)
        self.file.write_table(table)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


FORMATS = ("jsonl", "csv", "tsv", "parquet")


def output_format(path: Path) -> str:
    name = {"ndjson": "jsonl", "json": "jsonl"}.get(path.suffix.lower().lstrip("."), path.suffix.lower().lstrip("."))
    if name not in FORMATS:
        raise OfframpError(f"{path}: answers are written as .jsonl, .csv, .tsv or .parquet")
    return name


def open_writer(path: Path | None, columns: Sequence[str], overwrite: bool = False, format: str = "jsonl") -> Writer:
    """A writer for a file, by its name, or for standard output."""
    if path is None:
        if format == "parquet":
            raise OfframpError("Parquet goes to a file: name one with --out")
        return LineWriter(sys.stdout.buffer, format, columns)
    format = output_format(path)
    if path.is_dir():
        raise OfframpError(f"{path} is a folder: name a file, such as {path / 'answers.jsonl'}")
    if path.exists() and not overwrite:
        raise OfframpError(f"{path} exists: name another file, or say --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return ParquetWriter(path) if format == "parquet" else LineWriter(path.open("wb", buffering=0), format, columns)
    except OSError as error:
        raise OfframpError(f"{path} cannot be written ({error.strerror})") from error
