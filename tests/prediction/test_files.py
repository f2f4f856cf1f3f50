"""Answers on file: read back equal, whole rows only."""

from __future__ import annotations

import csv
import datetime
import decimal
import errno
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offramp.errors import OfframpError
from offramp.prediction import files
from offramp.prediction.files import LineWriter, open_writer
from offramp.tasks.tables import read_table

COLUMNS = ("id", "text", "label", "score", "exit_layer")
NASTY = [
    "plain",
    "a, b",
    'she said "no"',
    "two\nlines",
    "carriage\rreturn",
    "\r\n",
    "ü – 漢字 🙂",
    "  spaces  ",
    "",
    "\\",
]
ROWS: list[dict[str, Any]] = [
    {"id": str(i), "text": text, "label": "good", "score": 0.25 * (i % 4), "exit_layer": i}
    for i, text in enumerate(NASTY)
]
TEXT_OF: dict[str, Callable[[Any], Any]] = {"csv": str, "tsv": str, "jsonl": lambda cell: cell, "parquet": lambda c: c}


def read_back(path: Path) -> list[dict[str, Any]]:
    return [record.values for record in read_table(path)]


@pytest.mark.parametrize("format", files.FORMATS)
def test_read_back_equal(format: str, tmp_path: Path) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / "new" / f"answers.{format}"
    writer = open_writer(path, COLUMNS)
    for start in range(0, len(ROWS), 3):
        writer.write(ROWS[start : start + 3])
    writer.close()
    assert writer.written == len(ROWS)
    expected = [{name: TEXT_OF[format](cell) for name, cell in row.items()} for row in ROWS]
    if format == "tsv":  # has no way to write a tab or a line end in a cell
        expected = [{**row, "text": row["text"].replace("\n", " ").replace("\r", " ")} for row in expected]
    assert read_back(path) == expected


def test_csv_is_what_others_read(tmp_path: Path) -> None:
    writer = open_writer(tmp_path / "answers.csv", COLUMNS)
    writer.write(ROWS)
    writer.close()
    with (tmp_path / "answers.csv").open(newline="", encoding="utf-8") as file:
        assert [row["text"] for row in csv.DictReader(file)] == NASTY
    assert (tmp_path / "answers.csv").read_bytes().startswith(b"id,text,label,score,exit_layer\n0,plain,good,0.0,0\n")


@pytest.mark.parametrize(("name", "format"), [("a.ndjson", "jsonl"), ("a.json", "jsonl"), ("a.CSV", "csv")])
def test_format_by_name(name: str, format: str) -> None:
    assert files.output_format(Path(name)) == format


@pytest.mark.parametrize("format", files.FORMATS)
def test_no_rows(format: str, tmp_path: Path) -> None:
    """A file of no answers is there all the same, and says its columns where it can."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"answers.{format}"
    path.write_text("the old one")
    open_writer(path, COLUMNS, overwrite=True).close()
    if format == "jsonl":
        assert path.read_bytes() == b""
    else:
        assert read_table(path).columns == COLUMNS
        assert read_back(path) == []


VALUES: dict[str, list[Any]] = {
    "numbers": [1, 2, 3],
    "nothing at first": [None, None, "late"],
    "of many kinds": [1, "two", 3.5],
    "nested": [{"a": [1]}, [2], "x"],
    "too large": [2**70, 1, 2],
    "half a character": ["\ud800", "b", "c"],
    "a day": [datetime.date(2024, 2, 29)] * 3,
}


@pytest.mark.parametrize("format", files.FORMATS)
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_kept_cells_of_any_kind(values: list[Any], format: str, tmp_path: Path) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"answers.{format}"
    writer = open_writer(path, ("kept", "label"))
    for value in values:  # each in a write of its own: the first says what kind a Parquet column is
        if format == "parquet" and values is VALUES["of many kinds"] and value == "two":
            with pytest.raises(OfframpError, match=r"'kept' was int64 at first, and then was not: write \.jsonl"):
                writer.write([{"kept": value, "label": "good"}])
            break
        if format == "parquet" and values is VALUES["nested"] and value == [2]:
            break
        writer.write([{"kept": value, "label": "good"}])
    writer.close()
    back = [row["kept"] for row in read_back(path)]
    assert len(back) == writer.written >= 1
    if format == "jsonl":
        assert back == [str(value) if isinstance(value, datetime.date) else value for value in values]
    elif format == "parquet" and values is VALUES["a day"]:
        assert back == values
    elif values is VALUES["nothing at first"]:
        assert back == ([None, None, "late"] if format == "parquet" else ["", "", "late"])
    elif values is VALUES["half a character"]:
        assert back == ["\\ud800", "b", "c"]
    elif values is VALUES["nested"] and format != "parquet":
        assert back == ['{"a": [1]}', "[2]", "x"]


def test_kinds_within_one_write_become_text(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    writer = open_writer(tmp_path / "a.parquet", ("kept",))
    writer.write([{"kept": value} for value in (1, "two", None)])
    writer.write([{"kept": 4}])
    writer.close()
    assert [row["kept"] for row in read_back(tmp_path / "a.parquet")] == ["1", "two", None, "4"]


LATER: dict[str, tuple[Any, Any, bool]] = {
    "whole, then not": (1, 1.5, False),
    "a whole float among whole numbers": (1, 2.0, True),
    "floats, then whole": (1.5, 2, True),
    "another field": ({"a": 1}, {"a": 1, "b": 2}, False),
    "the same fields": ({"a": 1}, {"a": 3}, True),
    "none at last": (1, None, True),
    "true among numbers": (1, True, False),
    "larger decimals": (decimal.Decimal("1.50"), decimal.Decimal("1234.50"), True),
    "finer decimals": (decimal.Decimal("1.5"), decimal.Decimal("1.25"), False),
}


@pytest.mark.parametrize("kind", LATER)
def test_parquet_keeps_a_value_or_refuses_it(kind: str, tmp_path: Path) -> None:
    """What does not fit the kind that a column began with is never rounded, cut or dropped."""
    pytest.importorskip("pyarrow")
    first, later, fits = LATER[kind]
    writer = open_writer(tmp_path / "a.parquet", ("x",))
    writer.write([{"x": first}])
    if not fits:
        with pytest.raises(OfframpError, match=r"'x' was .* at first, and then was not"):
            writer.write([{"x": later}])
    else:
        writer.write([{"x": later}])
    writer.close()
    assert [row["x"] for row in read_back(tmp_path / "a.parquet")] == ([first, later] if fits else [first])


def test_parquet_has_few_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(files, "ROW_GROUP", 20)
    writer = open_writer(tmp_path / "a.parquet", COLUMNS)
    for _ in range(7):
        writer.write(ROWS)
    writer.close()
    file = parquet.ParquetFile(tmp_path / "a.parquet")
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (70, 4)


class FullDisk:
    """A file on a disk with room for so many bytes; it takes them in small bites, as files may."""

    def __init__(self, path: Path, room: int) -> None:
        self.file, self.room = path.open("wb", buffering=0), room

    def write(self, data: memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self.file.write(data[: min(7, self.room)])
        self.room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    writer = LineWriter(FullDisk(path, 100), str(path), ("label",), "csv")  # type: ignore[arg-type]
    rows = [{"label": "x" * 17}] * 2
    writer.write(rows)
    writer.write(rows)
    with pytest.raises(OfframpError, match=r"a\.csv could not be written to its end \(No space left on device\)"):
        writer.write(rows)
    writer.close()
    assert writer.written == 4
    assert path.read_text().splitlines() == ["label", *["x" * 17] * 4]


@pytest.mark.parametrize("format", files.FORMATS)
def test_ctrl_c_waits_for_the_end_of_a_write(format: str, tmp_path: Path) -> None:
    """A signal in the middle of a write: the row is whole, it is counted, and then the run stops."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"a.{format}"
    writer = open_writer(path, ("label",))

    def interrupted_rows() -> Iterator[dict[str, str]]:
        yield {"label": "one"}
        signal.raise_signal(signal.SIGINT)
        yield {"label": "two"}

    real = writer._write
    writer._write = lambda rows: real(list(interrupted_rows()))  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        writer.write([{}, {}])
    writer._write = real  # type: ignore[method-assign]
    writer.close()
    assert writer.written == 2
    assert [row["label"] for row in read_back(path)] == ["one", "two"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait() -> None:
    reached = []

    def write() -> None:
        with files.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            reached.append(1)
            signal.raise_signal(signal.SIGINT)
            reached.append(2)

    with pytest.raises(KeyboardInterrupt):
        write()
    assert reached == [1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xlsx", r"a\.xlsx: answers are written as \.jsonl, \.csv, \.tsv or \.parquet"),
        ("a", "answers are written as"),
        ("there.csv", r"there\.csv exists: name another file, or say --overwrite"),
        ("folder.csv", r"folder\.csv is a folder: name a file"),
        ("there.csv/below.csv", r"below\.csv cannot be written"),
    ],
)
def test_wrong_names(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("the old one")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OfframpError, match=message):
        open_writer(tmp_path / name, COLUMNS)
    assert (tmp_path / "there.csv").read_text() == "the old one"


def test_overwrite(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("the old one, and a long one at that")
    writer = open_writer(tmp_path / "a.jsonl", ("label",), overwrite=True)
    writer.write([{"label": "good"}])
    writer.close()
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {"label": "good"}
