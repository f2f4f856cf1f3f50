"""Reading tables: what is in a file comes out of it; what is wrong with it is said with its line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.tasks.tables import Record, read_stream, read_table, table_format

ROWS = [
    {"text": 'a "quoted" word', "label": "0"},
    {"text": '" a lone quote', "label": "1"},
    {"text": "line\u2028separator, next\x85line, carriage\rreturn, form\x0cfeed", "label": "0"},
    {"text": "naïve 日本 🙂", "label": "1"},
]


def as_tsv(rows: list[dict[str, Any]]) -> str:
    return "".join("\t".join(map(str, cells)) + "\n" for cells in (rows[0], *(row.values() for row in rows)))


def as_csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_json(rows: list[dict[str, Any]]) -> str:
    return json.dumps(rows, indent=1)


WRITERS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "rows.tsv": as_tsv,
    "rows.csv": as_csv,
    "rows.jsonl": as_jsonl,
    "rows.NDJSON": as_jsonl,
    "rows.json": as_json,
}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


@pytest.mark.parametrize("packed", PACKERS)
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("bom", [False, True])
def test_formats(name: str, packed: str, bom: bool, tmp_path: Path) -> None:
    path = tmp_path / (name + packed)
    path.write_bytes(PACKERS[packed](WRITERS[name](ROWS).encode("utf-8-sig" if bom else "utf-8")))
    table = read_table(path)
    assert table.columns == ("text", "label")
    assert [record.values for record in table] == ROWS


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS * 2000), tmp_path / "rows.parquet", row_group_size=700)
    table = read_table(tmp_path / "rows.parquet")
    assert table.columns == ("text", "label")
    assert list(table) == [Record(number, row) for number, row in enumerate(ROWS * 2000, start=1)]


@given(
    st.lists(st.tuples(st.text(min_size=1).filter(lambda t: not set(t) & set("\0\ufeff")), st.integers()), min_size=1)
)
def test_csv_gives_back_what_was_written(rows: list[tuple[str, int]]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("text", "label"), *rows])
    data = out.getvalue().encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    table = read_stream(io.BytesIO(data), "csv")
    assert [(record.values["text"], int(record.values["label"])) for record in table] == rows


@pytest.mark.parametrize("format", ["tsv", "csv", "jsonl"])
@pytest.mark.parametrize("stream", [io.StringIO, lambda text: io.BytesIO(text.encode())])
def test_streams(format: str, stream: Callable[[str], Any]) -> None:
    table = read_stream(stream(WRITERS[f"rows.{format}"](ROWS)), format)
    assert [record.values for record in table] == ROWS


def test_lines_are_numbered_where_rows_begin(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'text,label\r\n"two\r\nlines",0\r\n\r\nlast,1\r\n')
    assert [(record.line, record.values["text"]) for record in read_table(tmp_path / "a.csv")] == [
        (2, "two\r\nlines"),
        (5, "last"),
    ]
    (tmp_path / "a.jsonl").write_text('\n{"a": 1}\n\n{"a": 2}\n')
    assert list(read_table(tmp_path / "a.jsonl")) == [Record(2, {"a": 1}), Record(4, {"a": 2})]


def test_blank_lines_of_one_column_are_empty_cells(tmp_path: Path) -> None:
    """So an empty cell is written there; those at the end are none."""
    (tmp_path / "a.csv").write_bytes(b"\n\ntext\n\nfirst\n\n\nlast\n\n\n")
    rows = [(record.line, record.values["text"]) for record in read_table(tmp_path / "a.csv")]
    assert rows == [(4, ""), (5, "first"), (6, ""), (7, ""), (8, "last")]


def test_no_header_and_no_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"x\t1\r\ny\t0")
    table = read_table(tmp_path / "a.tsv", names=("text", "label"))
    assert list(table) == [Record(1, {"text": "x", "label": "1"}), Record(2, {"text": "y", "label": "0"})]


def test_short_rows_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na\t1\ncut\nb\t0\ncut\n")
    with caplog.at_level(logging.WARNING):
        assert [record.values["text"] for record in read_table(path, skip_short=True)] == ["a", "b"]
    assert caplog.messages == [f"{path}: 2 rows cut short left out, the first at line 3"]


def test_memory_stays_flat() -> None:
    class Endless(io.RawIOBase):
        """Five million bytes, made as they are read."""

        left = 5_000

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            if not self.left:
                return 0
            self.left -= 1
            line = b"x" * 997 + b"\t1\n"
            buffer[: len(line)] = line
            return len(line)

    tracemalloc.start()
    try:
        rows = read_stream(io.BufferedReader(Endless(), 4096), "tsv")
        assert sum(1 for _ in rows) == 4_999
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


BAD = {
    "empty": ("a.tsv", b"", "a.tsv is empty"),
    "empty csv": ("a.csv", b"", "a.csv is empty"),
    "empty json": ("a.jsonl", b"\n", "a.jsonl is empty"),
    "not utf-8": ("a.tsv", b"text\tlabel\nok\t1\ncaf\xe9\t0\n", "a.tsv:3: not UTF-8 (byte 0xe9 at 4)"),
    "utf-16": ("a.csv", "text,label\n".encode("utf-16"), "a.csv:1: not UTF-8 (it looks like UTF-16)"),
    "nul": ("a.csv", b"text,label\na\0b,1\n", "a.csv:2: a NUL byte"),
    "short": ("a.tsv", b"text\tlabel\nok\t1\ncut\n", "a.tsv:3: row cut short, 1 of 2 cells: expected 'text', 'label'"),
    "long": ("a.tsv", b"text\tlabel\na\tb\t1\n", "a.tsv:2: row too long, 3 of 2 cells"),
    "short csv": ("a.csv", b'text,label\n"a\nb",1\ncut\n', "a.csv:4: row cut short"),
    "blank": ("a.tsv", b"text\tlabel\n\na\t1\n", "a.tsv:2: blank line"),
    "open quote": ("a.csv", b'text,label\na,0\n"b,1\nc,0\n', "a.csv:3: a quoted field that does not end"),
    "odd quote": ("a.csv", b'text,label\n"b" c,1\n', "a.csv:2: not CSV"),
    "old line ends": ("a.csv", b"text,label\rb,1\r", "a.csv:1: not CSV"),
    "same name": ("a.csv", b"text,text\na,b\n", "a.csv:1: two columns are called 'text'"),
    "bad json": ("a.jsonl", b'{"a": 1}\n{"a": \n', "a.jsonl:2: not JSON"),
    "no object": ("a.jsonl", b'{"a": 1}\n[1]\n', "a.jsonl:2: list: expected one JSON object a line"),
    "deep json": ("a.jsonl", b'{"a":' * 100_000, "a.jsonl:1: not JSON"),
    "bad array": ("a.json", b'[{"a": 1},\n', "a.json: not JSON"),
    "array of numbers": ("a.json", b"[1, 2]", "a.json: expected objects"),
    "cut gz": ("a.tsv.gz", gzip.compress(b"text\tlabel\n" + b"a\t1\n" * 9)[:-9], "a.tsv.gz is damaged or cut short"),
    "no gz": ("a.tsv.gz", b"text\tlabel\n", "a.tsv.gz is damaged or cut short after line 0"),
    "cut xz": ("a.tsv.xz", lzma.compress(b"text\tlabel\na\t1\n")[:-9], "a.tsv.xz is damaged or cut short after line 2"),
    "no parquet": ("a.parquet", b"PAR1", "a.parquet is damaged, or no Parquet file"),
    "unknown": ("a.xlsx", b"x", "a.xlsx: cannot tell its format by its name: expected .tsv"),
    "no suffix": ("a", b"x", "a: cannot tell its format"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(case: str, tmp_path: Path) -> None:
    name, data, message = BAD[case]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(OfframpError) as raised:
        list(read_table(tmp_path / name))
    assert str(raised.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "dev_matched.tsv").touch()
    with pytest.raises(OfframpError, match=r"dev\.tsv does not exist: did you mean .*/dev_matched\.tsv\?"):
        read_table(tmp_path / "dev.tsv")
    with pytest.raises(OfframpError, match=r"is a folder: expected a file, such as .*/dev_matched\.tsv"):
        read_table(tmp_path)
    with pytest.raises(OfframpError, match="and neither does the folder"):
        read_table(tmp_path / "no" / "dev.tsv")


def test_columns_that_are_not_there() -> None:
    table = read_stream(io.StringIO("sentence\tlabel\n"), "tsv")
    with pytest.raises(OfframpError, match="no column 'sentense': it has 'sentence', 'label'; did you mean 'sentence'"):
        table.require("sentense")
    with pytest.raises(OfframpError, match="name one with --text"):
        table.require("x", "--text")


def test_format_of_a_stream() -> None:
    with pytest.raises(OfframpError, match="format 'parquet': expected one of tsv, csv, jsonl, json"):
        read_stream(io.StringIO(), "parquet")


def test_packed_parquet_is_no_format() -> None:
    with pytest.raises(OfframpError, match="cannot tell its format"):
        table_format(Path("a.parquet.gz"))
