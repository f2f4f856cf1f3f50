"""Rows of TSV, CSV, JSON lines and Parquet files as a stream: the file is never held in memory."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, NamedTuple

from offramp.errors import OfframpError, needs, one_line
from offramp.tasks.files import COMPRESSIONS, LONGEST_LINE, Lines, check_file, open_bytes

log = logging.getLogger("offramp")

LONGEST_FIELD = 2**27
"""Bytes of one CSV field; beyond it, a quote was surely left open."""
LONGEST_ARRAY = 2**32
"""Bytes of one line where it may be a whole file: one array of JSON."""
PARQUET_BATCH = 1024


class Record(NamedTuple):
    line: int
    """Where the row begins: its line in the file, from 1; in Parquet and JSON arrays, the number of the row."""
    values: dict[str, Any]


@dataclass(frozen=True)
class Table:
    """The columns of a file, known at once, and its rows, to be read once."""

    source: str
    columns: tuple[str, ...]
    rows: Iterator[Record] = field(repr=False)
    label_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For columns that hold numbers of labels (the hub's ClassLabel): the labels' names."""
    numbered: str = ""
    """What stands before a row's number in messages: nothing for lines, `row ` where there are no lines."""

    def __iter__(self) -> Iterator[Record]:
        return self.rows

    def where(self, line: int) -> str:
        return f"{self.source}:{self.numbered}{line}"

    def require(self, column: str, option: str = "") -> str:
        """The column, if there is one of that name."""
        if column in self.columns:
            return column
        near = get_close_matches(column, self.columns, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; name one with {option}" if option else ""
        raise OfframpError(
            f"{self.source}: there is no column {column!r}: it has {', '.join(map(repr, self.columns))}{hint}"
        )


def table_format(path: Path) -> str:
    """`tsv`, `csv`, `json`, `jsonl` or `parquet`, by the file's name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    suffix = (suffixes[-2] if len(suffixes) > 1 else "") if packed else suffixes[-1] if suffixes else ""
    name = {".ndjson": "jsonl"}.get(suffix, suffix.removeprefix("."))
    if name not in FORMATS and not (name == "parquet" and not packed):
        raise OfframpError(
            f"{path}: cannot tell its format by its name: expected .tsv, .csv, .jsonl, .json (with .gz, .xz or .bz2 "
            "after it if packed) or .parquet"
        )
    return name


def read_table(path: str | Path, names: Sequence[str] | None = None, skip_short: bool = False) -> Table:
    """The rows of a file; `names` are its columns where it has no header.

    A row with more or fewer cells than columns is an error; with `skip_short`, TSV rows with fewer are left out, and a
    warning says how many.
    """
    path = Path(path)
    check_file(path)
    if table_format(path) == "parquet":
        return _parquet(path)
    format = table_format(path)
    lines = Lines(open_bytes(path), str(path), LONGEST_ARRAY if format == "json" else LONGEST_LINE)
    return _tsv(lines, names, skip_short) if format == "tsv" else FORMATS[format](lines, names)


def read_stream(stream: IO[Any], format: str, source: str = "standard input") -> Table:
    """The rows of an open stream of bytes or text: `tsv`, `csv`, `json` or `jsonl`."""
    if format not in FORMATS:
        raise OfframpError(f"format {format!r}: expected one of {', '.join(FORMATS)}")
    return FORMATS[format](Lines(stream, source), None)


def _tsv(lines: Lines, names: Sequence[str] | None, skip_short: bool = False) -> Table:
    """Tabs part cells and nothing else does: quotes are text, as in GLUE's files."""
    columns = tuple(names) if names else _header(lines, _first_line(lines).rstrip("\r\n").split("\t"))

    def rows() -> Iterator[Record]:
        blank, short = 0, []
        for line in lines:
            cells = line.rstrip("\r\n").split("\t")
            if cells == [""] and len(columns) > 1:
                blank = blank or lines.number  # no row if nothing but blank lines follows
                continue
            if blank:
                raise lines.error(f"blank line: expected {_listed(columns)}", blank)
            if len(cells) < len(columns) and skip_short:
                short.append(lines.number)
                continue
            yield _record(lines, lines.number, columns, cells)
        if short:
            log.warning("%s: %d rows cut short left out, the first at line %d", lines.source, len(short), short[0])

    return Table(lines.source, columns, rows())


def _csv(lines: Lines, names: Sequence[str] | None) -> Table:
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_FIELD))
    reader = csv.reader(lines, strict=True)  # strict: a quote left open must not swallow the rest of the file

    def numbered_rows() -> Iterator[tuple[int, list[str]]]:
        start = 1
        try:
            for cells in reader:
                yield start, cells  # none in a blank line
                start = reader.line_num + 1
        except csv.Error as error:
            open_quote = "end of data" in str(error) or "field limit" in str(error)
            what = "a quoted field that does not end" if open_quote else f"not CSV ({error})"
            raise lines.error(
                f'{what}: expected commas, and text with commas, quotes or line ends in ""', start
            ) from error

    numbered = numbered_rows()
    header = None if names else next((cells for _, cells in numbered if cells), None)
    columns = tuple(names) if names else _header(lines, header)

    def rows() -> Iterator[Record]:
        blank: list[int] = []
        for start, cells in numbered:
            if not cells:
                blank.append(start)
                continue
            if len(columns) == 1:  # a blank line is an empty cell, unless nothing else follows
                yield from (_record(lines, line, columns, [""]) for line in blank)
            blank = []
            yield _record(lines, start, columns, cells)

    return Table(lines.source, columns, rows())


def _jsonl(lines: Lines, names: Sequence[str] | None) -> Table:
    first = _first_line(lines)
    while not first.strip():
        first = _first_line(lines)
    if first.lstrip().startswith("["):
        return _json_array(lines, first)
    start = lines.number
    values = _json_object(lines, first)

    def rows() -> Iterator[Record]:
        yield Record(start, values)
        for line in lines:
            if not line.isspace():
                yield Record(lines.number, _json_object(lines, line))

    return Table(lines.source, tuple(values), rows())


def _json_array(lines: Lines, first: str) -> Table:
    """One array of objects: it has to be read as a whole."""
    try:
        values = json.loads(first + "".join(lines), object_pairs_hook=_each_name_once)
    except (ValueError, RecursionError) as error:
        raise OfframpError(f"{lines.source}: not JSON ({one_line(error)})") from error
    if not isinstance(values, list) or not values or not all(isinstance(value, dict) for value in values):
        raise OfframpError(f"{lines.source}: expected objects, one a line or in one array")
    rows = (Record(number, value) for number, value in enumerate(values, start=1))
    return Table(lines.source, tuple(values[0]), rows, numbered="row ")


def _json_object(lines: Lines, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line, object_pairs_hook=_each_name_once)
    except (ValueError, RecursionError) as error:
        raise lines.error(f"not JSON ({one_line(error)}): expected one object a line") from error
    if not isinstance(values, dict):
        raise lines.error(f"{type(values).__name__}: expected one JSON object a line")
    return values


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON's objects may say a name twice, and Python would forget the first of them."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"two values are called {next(name for name in names if names.count(name) > 1)!r}")
    return values


FORMATS: dict[str, Callable[[Lines, Sequence[str] | None], Table]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
    "json": _jsonl,
}
"""The formats that are text, and can therefore come from a stream."""


def _parquet(path: Path) -> Table:
    parquet = needs("pyarrow.parquet", "data")
    arrow_errors = (needs("pyarrow", "data").ArrowException, OSError, ValueError, OverflowError)
    try:
        file = parquet.ParquetFile(path)
        label_names = _class_labels(file.schema_arrow.metadata or {})
    except (*arrow_errors, AttributeError, RecursionError) as error:
        raise OfframpError(f"{path} is damaged, or no Parquet file ({one_line(error)})") from error

    def rows() -> Iterator[Record]:
        number = 0
        try:
            for batch in file.iter_batches(PARQUET_BATCH):
                for values in batch.to_pylist():
                    number += 1
                    yield Record(number, values)
        except arrow_errors as error:
            raise OfframpError(f"{path} is damaged after row {number} ({one_line(error)}): fetch it again") from error
        if number != file.metadata.num_rows:
            raise OfframpError(f"{path} is damaged: it says {file.metadata.num_rows} rows, and holds {number}")

    columns = file.schema_arrow.names
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise OfframpError(f"{path}: two columns are called {twice[0]!r}: expected a name for each column")
    return Table(str(path), tuple(columns), rows(), label_names, numbered="row ")


def _class_labels(metadata: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """The names of labels, which `datasets` stores beside the schema."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    return {
        column: tuple(feature["names"])
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _first_line(lines: Lines) -> str:
    line = next(lines, None)
    if line is None:
        raise OfframpError(f"{lines.source} is empty")
    return line


def _header(lines: Lines, columns: list[str] | None) -> tuple[str, ...]:
    if columns is None:
        raise OfframpError(f"{lines.source} is empty")
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise lines.error(f"two columns are called {twice[0]!r}: expected a header with a name for each column")
    return tuple(columns)


def _record(lines: Lines, line: int, columns: tuple[str, ...], cells: list[str]) -> Record:
    if len(cells) != len(columns):
        kind = "cut short" if len(cells) < len(columns) else "too long"
        raise lines.error(f"row {kind}, {len(cells)} of {len(columns)} cells: expected {_listed(columns)}", line)
    return Record(line, dict(zip(columns, cells, strict=True)))


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(map(repr, columns))
