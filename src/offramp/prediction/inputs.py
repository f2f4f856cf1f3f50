"""What to answer: the rows of a file or a pipe, or one text."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from offramp.engine import Prediction, Text
from offramp.engine.texts import NoText
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.tasks.benchmarks import find_benchmark
from offramp.tasks.column_names import find_columns
from offramp.tasks.files import COMPRESSIONS, Lines, open_bytes
from offramp.tasks.rows import Columns, text_cell
from offramp.tasks.tables import Record, Table, read_stream, read_table, table_format
from offramp.tasks.trained import trained_on

Item = tuple[Text | NoText, dict[str, Any]]
"""A text or pair, and the columns that are to stand beside its answer. A row without a text has no answer, either."""

ANSWER = ("label", "score", "exit_layer")
"""The columns of an answer."""

LIKE_A_PATH = re.compile(r"[\w./~-]+\.(txt|json|gz|xz|bz2|zip|md|xlsx|xls)")
"""An argument that was meant as a file: one word with a suffix that is no word's end."""

LINES = "lines"
"""A pipe of plain text: one text a line, the two of a pair parted by a tab."""


def is_file_name(text: str) -> bool:
    """Whether an argument names a file, there or not, rather than being the text itself."""
    try:
        if text.strip() and Path(text).exists():
            return True
        table_format(Path(text))
    except (OfframpError, OSError, ValueError):  # no suffix of ours, or no name that a file can have
        return bool(LIKE_A_PATH.fullmatch(text)) or is_in_a_folder(text)
    return True


def is_in_a_folder(text: str) -> bool:
    """Whether it is one word that begins as a path does, or with a folder that is there."""
    if len(text.split()) != 1 or "/" not in text:
        return False
    try:
        return text.startswith(("/", "./", "../", "~/")) or Path(text).parent.is_dir()
    except (OSError, ValueError):  # no name that a file can have
        return False


def open_table(path: str, format: str | None) -> Table:
    """A file, or `-` for standard input."""
    return read_stream(standard_input(), format or "jsonl") if path == "-" else read_table(path)


def standard_input() -> IO[bytes]:
    """With a buffer of its own: Python's is locked while another thread waits for a line, and then cannot be closed."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (AttributeError, OSError, ValueError):  # something that only looks like standard input
        return sys.stdin.buffer


def table_items(
    table: Table, model: MultiExitModel, text: str | None, pair: str | None, keep: Sequence[str]
) -> Iterator[Item]:
    """The rows of a table. Columns that are not named are those the model was trained on, or found by their names."""
    columns = columns_of(table, model, text, pair)
    for column in keep:
        table.require(column, "--keep")
    return (_item(table, record, columns, keep) for record in table)


def table_texts(table: Table, model: MultiExitModel, text: str | None, pair: str | None) -> Iterator[Text]:
    """The texts of a table, every row of which must have one."""
    columns = columns_of(table, model, text, pair)
    return (row_text(table, record, columns) for record in table)


def _item(table: Table, record: Record, columns: Columns, keep: Sequence[str]) -> Item:
    beside = kept_cells(record, keep)
    try:
        return row_text(table, record, columns), beside
    except OfframpError as error:
        return NoText(str(error)), beside


def row_text(table: Table, record: Record, columns: Columns) -> Text:
    """The text of a row, or its pair of texts."""
    first = text_cell(table, record, columns.text)
    return first if columns.pair is None else (first, text_cell(table, record, columns.pair))


def kept_cells(record: Record, keep: Sequence[str], reserved: Sequence[str] = ANSWER) -> dict[str, Any]:
    """What stands beside a row's answer."""
    return {kept_name(column, reserved): _kept(record.values.get(column)) for column in keep}


def kept_columns(keep: str | None, reserved: Sequence[str] = ANSWER) -> tuple[list[str], list[str]]:
    """The columns that `--keep` names, and what they are called beside the answers."""
    names = list(dict.fromkeys(name.strip() for name in keep.split(","))) if keep else []
    beside = [kept_name(name, reserved) for name in names]
    twice = [name for name in beside if beside.count(name) > 1]
    if twice:
        raise OfframpError(f"--keep {keep}: two columns would be called {twice[0]!r}: keep one of them")
    return names, beside


def kept_name(column: str, reserved: Sequence[str] = ANSWER) -> str:
    """A column's name in the output: one that is called as an answer is must not be taken for it."""
    return f"input_{column}" if column in reserved else column


def answer_cells(prediction: Prediction) -> dict[str, Any]:
    """The columns of an answer, as they are written."""
    score = None if prediction.score is None else round(prediction.score, 6)
    return dict(zip(ANSWER, (prediction.label, score, prediction.exit_layer), strict=True))


def _kept(cell: Any) -> Any:
    """A cell as JSON can hold it: NaN is a missing one, and what is infinite is written out."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else str(cell)
    if isinstance(cell, dict):
        return {name: _kept(value) for name, value in cell.items()}
    return [_kept(value) for value in cell] if isinstance(cell, list) else cell


def text_item(model: MultiExitModel, text: str, pair: str | None) -> Item:
    """One text, or a pair, that is an argument itself."""
    wants_pairs = takes_pairs(model)
    if wants_pairs and pair is None:
        raise OfframpError("the model answers pairs of texts: give the second text with --pair")
    if wants_pairs is False and pair is not None:
        raise OfframpError("the model answers single texts: leave --pair out")
    if not text.strip() or (pair is not None and not pair.strip()):
        raise OfframpError("the text is empty: expected some words, a file, or - for standard input")
    return (text if pair is None else (text, pair)), {"text": text}


def columns_of(table: Table, model: MultiExitModel, text: str | None, pair: str | None) -> Columns:
    trained = trained_on(model)
    if text is None and trained.get("text") in table.columns:
        text, pair = trained["text"], pair or trained.get("text_pair")
    columns = find_columns(table, text, pair, label="", needs_label=False)  # whichever the label is, it is not needed
    wants_pairs = takes_pairs(model)
    if wants_pairs is not None and wants_pairs != (columns.pair is not None):
        raise OfframpError(
            f"{table.source}: the model answers {'pairs of texts' if wants_pairs else 'single texts'}: "
            f"name the {'columns with --text and --text-pair' if wants_pairs else 'column with --text'}"
        )
    return columns


def is_text_file(path: str) -> bool:
    """Whether a file is plain text by its name: one text a line."""
    name = Path(path)
    return (name.with_suffix("") if name.suffix.lower() in COMPRESSIONS else name).suffix.lower() == ".txt"


def line_items(model: MultiExitModel, path: str | None = None) -> Iterator[Item]:
    """A file or standard input, one text a line, the two of a pair parted by a tab."""
    lines = Lines(standard_input(), "standard input") if path is None else Lines(open_bytes(Path(path)), path)
    pairs = takes_pairs(model)
    for line in lines:
        text = line.rstrip("\r\n")
        cells = text.split("\t") if pairs else [text]
        if not text.strip():
            yield NoText(str(lines.error("an empty line: expected a text"))), {}
        elif pairs and (len(cells) != 2 or not all(cell.strip() for cell in cells)):
            yield NoText(str(lines.error("expected two texts with a tab between them"))), {}
        else:
            yield (cells[0], cells[1]) if pairs else text, {}


def takes_pairs(model: MultiExitModel) -> bool | None:
    """Whether the model was trained on pairs; None where nobody knows."""
    trained = trained_on(model)
    if "text" in trained:
        return trained.get("text_pair") is not None
    with suppress(OfframpError):  # a task of another kind, or of another version
        return find_benchmark(str(trained["name"])).pair if trained.get("name") else None
    return None
