"""A file of answers that a stopped run left: how far it came, and whether this is the run that goes on with it."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, one_line
from offramp.prediction.files import LineWriter, output_format
from offramp.tasks.tables import LONGEST_FIELD

COMPARED = 16
"""Rows at the end of what is there that are answered again, and must come out the same."""
MAY_DIFFER = "score"
"""The column that rounding may change in its last digit."""


@dataclass
class BegunFile:
    """Whole rows of a file of answers, and where they end."""

    path: Path
    format: str
    columns: list[str]
    rows: int
    size: int
    """Bytes, up to the end of the last whole row."""
    last: deque[list[str]]
    """The cells of the last rows, as they are written."""

    def writer(self) -> LineWriter:
        """Writes behind what is there; half a row, which a kill may leave, is cut off."""
        try:
            stream = self.path.open("r+b", buffering=0)
            stream.truncate(self.size)
            stream.seek(self.size)
        except OSError as error:
            raise OfframpError(f"{self.path} cannot be written ({error.strerror})") from error
        writer = LineWriter(stream, str(self.path), self.columns, self.format, begun=self.size)
        writer.written = self.rows
        return writer

    def must_be(self, row: Mapping[str, Any]) -> None:
        """Refuse to go on if the oldest row not yet compared would be another one now."""
        number, before = self.rows - len(self.last) + 1, self.last.popleft()
        now = cells_of(row, self.columns, self.format)
        for column, then, cell in zip(self.columns, before, now, strict=True):
            if column != MAY_DIFFER and then != cell:
                raise OfframpError(
                    f"{self.path} was begun with another model, policy or input: in row {number} {column} is {then}, "
                    f"and would be {cell}. Name another file, or say --overwrite instead of --resume"
                )

    def must_not_outlast(self, input: str, skipped: int) -> None:
        """Refuse an input with fewer rows than there are answers."""
        if self.last:
            raise OfframpError(
                f"{self.path} holds {self.rows:,} answers, and {input} has {skipped:,} rows: it was begun with another"
            )


def read_begun(path: Path, columns: Sequence[str]) -> BegunFile:
    """What is there of a file of these columns."""
    format = output_format(path)
    if format == "parquet":
        raise OfframpError(f"{path}: a .parquet cannot be gone on with once it was closed; .jsonl, .csv and .tsv can")
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    last: deque[list[str]] = deque(maxlen=COMPARED)
    rows, size = 0, 0
    try:
        for number, (cells, end) in enumerate(_records(path, format, columns)):
            if format != "jsonl" and number == 0:
                if cells != list(columns):
                    raise ValueError(f"its columns are {','.join(cells)}, and now they are {','.join(columns)}")
            else:
                if len(cells) != len(columns):
                    raise ValueError(f"row {rows + 1} has {len(cells)} cells")
                last.append(cells)
                rows += 1
            size = end
    except OSError as error:
        raise OfframpError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise OfframpError(f"{path} cannot be gone on with: {one_line(error)}") from error
    return BegunFile(path, format, list(columns), rows, size, last)


def _records(path: Path, format: str, columns: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """The cells of each whole row, and where it ends."""
    end, record, quotes = 0, [], 0
    with path.open("rb") as file:
        for line in file:
            record.append(line)
            quotes += line.count(b'"') if format == "csv" else 0
            if quotes % 2 or not line.endswith(b"\n"):
                continue  # a cell goes on in the next line; or the file ends within a row
            whole = b"".join(record)
            end += len(whole)
            yield _cells(whole.decode("utf-8").removesuffix("\n"), format, columns), end
            record, quotes = [], 0


def _cells(text: str, format: str, columns: Sequence[str]) -> list[str]:
    if format == "tsv":
        return text.split("\t")
    if format == "csv":
        return next(csv.reader([text + "\n"]))
    row = json.loads(text)
    if not isinstance(row, dict) or list(row) != list(columns):
        raise ValueError(f"its columns are not {','.join(columns)}")
    return cells_of(row, columns, format)


def cells_of(row: Mapping[str, Any], columns: Sequence[str], format: str) -> list[str]:
    """A row's cells as they stand in a file; of JSON lines, each as JSON."""
    if format == "jsonl":
        return [json.dumps(row[column], ensure_ascii=False, default=str) for column in columns]
    written = LineWriter.lines([[row[column] for column in columns]], format).removesuffix("\n")
    return _cells(written.encode("utf-8", "backslashreplace").decode(), format, columns)
