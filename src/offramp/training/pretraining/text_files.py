"""Text to pre-train on, as a stream of documents: plain or packed text, and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, needs, one_line
from offramp.tasks.files import COMPRESSIONS, Lines, check_file, open_bytes
from offramp.tasks.tables import FORMATS, PARQUET_BATCH

EXPECTED = f".txt (with {', '.join(COMPRESSIONS)} after it if packed) or .parquet"
NO_TEXT = {f".{name}" for name in (*FORMATS, "parquet", "tar", "zip")}
"""What can be in a packed file and is not lines of text."""
LONGEST_DOCUMENT = 2**23
"""Characters after which a document ends anyway: a file without blank lines must not fill the memory."""


def text_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files of text among files and folders, in the order of the paths; those of a folder sorted by name."""
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and _is_text(file))
            if not inside:
                raise OfframpError(f"{path}: there is no text in this folder: expected files named {EXPECTED}")
            found += inside
        else:
            check_file(path)
            if not _is_text(path):
                raise OfframpError(f"{path}: cannot tell by its name that it is text: expected {EXPECTED}")
            found.append(path)
    if not found:
        raise OfframpError(f"no text to pre-train on: name files or folders of {EXPECTED}")
    seen: dict[Path, Path] = {}
    for file in found:
        first = seen.setdefault(file.resolve(), file)
        if first is not file:
            raise OfframpError(f"{file} is named twice (it is {first}): leave one out")
    return found


def documents(path: Path) -> Iterator[list[str]]:
    """The documents of a file, each a list of its paragraphs.

    In text, a line is a paragraph and blank lines stand between documents. In Parquet a row is a document, and its
    lines are the paragraphs. Only the document at hand is in memory.
    """
    check_file(path)
    empty = True
    for paragraphs in _rows(path) if path.suffix.lower() == ".parquet" else _blocks(path):
        empty = False
        yield paragraphs
    if empty:
        raise OfframpError(f"{path}: there is no text in it: leave it out")


def _is_text(path: Path) -> bool:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if not suffixes or path.name.startswith("."):
        return False
    return suffixes[-1] in (".txt", ".parquet") or (
        suffixes[-1] in COMPRESSIONS and not (len(suffixes) > 1 and suffixes[-2] in NO_TEXT)
    )


def _blocks(path: Path) -> Iterator[list[str]]:
    block: list[str] = []
    size = 0
    for line in Lines(open_bytes(path), str(path)):
        paragraph = line.strip()
        if paragraph:
            block.append(paragraph)
            size += len(paragraph)
        if block and (not paragraph or size >= LONGEST_DOCUMENT):
            yield block
            block, size = [], 0
    if block:
        yield block


def _rows(path: Path) -> Iterator[list[str]]:
    parquet = needs("pyarrow.parquet", "data")
    arrow = needs("pyarrow", "data")
    number = 0
    try:
        file = parquet.ParquetFile(path)
        column = _text_column(path, file.schema_arrow, arrow.types)
        for batch in file.iter_batches(PARQUET_BATCH, columns=[column]):
            for text in batch.column(0).to_pylist():
                number += 1
                paragraphs = [line.strip() for line in (text or "").split("\n") if line.strip()]
                if paragraphs:
                    yield paragraphs
    except (arrow.ArrowException, OSError) as error:
        raise OfframpError(f"{path} is damaged after row {number}, or no Parquet file ({one_line(error)})") from error


def _text_column(path: Path, schema: Any, types: Any) -> str:
    texts = [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]
    if "text" in texts:
        return "text"
    if len(texts) != 1:
        columns = ", ".join(f"{field.name!r} ({field.type})" for field in schema)
        raise OfframpError(
            f"{path}: which column is the text? Expected `text`, or one column of strings: it has {columns}"
        )
    return str(texts[0])
