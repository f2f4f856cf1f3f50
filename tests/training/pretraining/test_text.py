"""Reading text: the documents of a file come out of it; what is wrong with it is said with its name."""

from __future__ import annotations

import gzip
import lzma
import random
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.training.pretraining import text_files
from offramp.training.pretraining.text_files import documents
from tests.training.pretraining.written import Documents, write_packed, write_text

DOCUMENTS = [["One line.", "Naïve 日本 🙂, and\u2028more."], ["Another  one!"], ["A last", "of", "three."]]


def write_parquet(path: Path, texts: Documents) -> Path:
    return write_columns(path, text=["\n".join(paragraphs) for paragraphs in texts], number=list(range(len(texts))))


def write_columns(path: Path, **columns: list[Any]) -> Path:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)
    return path


def write_windows(path: Path, texts: Documents) -> Path:
    return write_text(path, [["\ufeff" + texts[0][0], *texts[0][1:]], *texts[1:]], between="\r\n \t\r\n\r\n")


WRITERS: dict[str, Callable[[Path, Documents], Path]] = {
    "plain.txt": write_text,
    "Plain.TXT": write_text,
    "windows.txt": write_windows,
    "packed.txt.gz": write_packed(gzip.open),
    "packed.gz": write_packed(gzip.open),
    "packed.en.xz": write_packed(lzma.open),
    "packed.txt.xz": write_packed(lzma.open),
    "rows.parquet": write_parquet,
}


class TestReading:
    @pytest.mark.parametrize("name", WRITERS)
    def test_every_kind_of_file_holds_the_same_documents(self, tmp_path: Path, name: str) -> None:
        path = WRITERS[name](tmp_path / name, DOCUMENTS)
        assert text_files.text_files([path]) == [path]
        assert list(documents(path)) == DOCUMENTS

    @given(st.lists(st.lists(st.text(string.printable + "äß日").filter(str.strip), min_size=1), min_size=1))
    def test_text_survives(self, tmp_path_factory: pytest.TempPathFactory, texts: Documents) -> None:
        lines = [[" ".join(paragraph.split()) for paragraph in paragraphs] for paragraphs in texts]
        path = write_text(tmp_path_factory.mktemp("text") / "a.txt", lines)
        assert list(documents(path)) == lines

    def test_rows_without_text_are_no_documents(self, tmp_path: Path) -> None:
        path = write_columns(tmp_path / "a.parquet", body=["one\n\n two \r\n", None, "", " \n", "three"], stars=[1] * 5)
        assert list(documents(path)) == [["one", "two"], ["three"]]

    def test_a_file_without_blank_lines_does_not_fill_the_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(text_files, "LONGEST_DOCUMENT", 10)
        path = write_text(tmp_path / "a.txt", [["12345"] * 5])
        assert list(documents(path)) == [["12345"] * 2, ["12345"] * 2, ["12345"]]

    def test_a_folder_is_searched(self, tmp_path: Path) -> None:
        names = ["b.txt", "a.gz", "deep/c.txt.xz", "d.parquet"]
        for name in [*names, "README.md", "rows.tsv.gz", "all.tar.xz", "plain", ".hidden.txt"]:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(b"x")
        (tmp_path / "folder.txt").mkdir()
        assert text_files.text_files([tmp_path]) == sorted(tmp_path / name for name in names)
        first = tmp_path / "deep"
        assert text_files.text_files([tmp_path / "b.txt", str(first)]) == [tmp_path / "b.txt", first / "c.txt.xz"]

    @pytest.mark.parametrize(
        ("paths", "message"),
        [
            (["tezt.txt"], r"tezt.txt does not exist: did you mean .*text.txt\?"),
            (["empty"], "empty: there is no text in this folder: expected files named .txt"),
            (["notes.md"], r"notes.md: cannot tell by its name that it is text: expected .txt .* or .parquet"),
            (["rows.jsonl.gz"], r"rows.jsonl.gz: cannot tell by its name"),
            (["text.txt", "empty/../text.txt"], r"empty/../text.txt is named twice"),
            ([".", "text.txt"], r"text.txt is named twice"),
            ([], "no text to pre-train on"),
        ],
    )
    def test_what_is_no_text_is_said(self, tmp_path: Path, paths: list[str], message: str) -> None:
        (tmp_path / "empty").mkdir()
        for name in ("text.txt", "notes.md", "rows.jsonl.gz"):
            (tmp_path / name).write_text("words\n")
        with pytest.raises(OfframpError, match=message):
            text_files.text_files([tmp_path / path for path in paths])

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.txt", b"fine\nna\xefve\n", r"a.txt:2: not UTF-8 \(byte 0xef at 3\)"),
            ("a.txt", "utf16".encode("utf-16"), r"a.txt:1: not UTF-8 \(it looks like UTF-16\)"),
            ("a.txt", b"\n \n\r\n", "a.txt: there is no text in it"),
            ("a.gz", b"no archive", "a.gz is damaged or cut short after line 0"),
            ("a.gz", gzip.compress(b"line\n" * 10_000)[:-12], r"a.gz is damaged or cut short after line \d+"),
            (
                "a.xz",
                lzma.compress(random.Random(0).randbytes(9).hex().encode() * 9)[:-9],
                "a.xz is damaged or cut short",
            ),
            ("a.parquet", b"PAR1 and no more", "a.parquet is damaged after row 0, or no Parquet file"),
        ],
    )
    def test_what_is_wrong_with_a_file_is_said(self, tmp_path: Path, name: str, content: bytes, message: str) -> None:
        if name.endswith("parquet"):
            pytest.importorskip("pyarrow")
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OfframpError, match=message):
            list(documents(tmp_path / name))

    @pytest.mark.parametrize("columns", [{"a": ["x"], "b": ["y"]}, {"a": [1]}])
    def test_a_table_without_a_text_column_names_its_columns(self, tmp_path: Path, columns: dict[str, Any]) -> None:
        path = write_columns(tmp_path / "a.parquet", **columns)
        with pytest.raises(OfframpError, match=r"which column is the text\? Expected `text`, .* it has 'a' \("):
            list(documents(path))

    def test_what_reads_parquet_may_be_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        (tmp_path / "a.parquet").write_bytes(b"")
        with pytest.raises(OfframpError, match=r"this needs pyarrow: pip install 'offramp\[data\]'"):
            list(documents(tmp_path / "a.parquet"))
