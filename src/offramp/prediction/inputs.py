"""What to answer: the rows of a file or a pipe, or one text."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.evaluation.run import training_record
from offramp.models import MultiExitModel
from offramp.prediction.predictor import Text
from offramp.tasks.benchmarks import find_benchmark
from offramp.tasks.column_names import find_columns
from offramp.tasks.files import Lines
from offramp.tasks.rows import Columns, text_cell
from offramp.tasks.tables import Record, Table, read_stream, read_table, table_format

Item = tuple[Text, dict[str, Any]]
"""A text or pair, and the columns that are to stand beside its answer."""

LINES = "lines"
"""A pipe of plain text: one text a line, the two of a pair parted by a tab."""


def is_file_name(text: str) -> bool:
    """Whether an argument names a file rather than being the text itself."""
    try:
        if Path(text).exists():
            return True
        table_format(Path(text))
    except (OfframpError, OSError, ValueError):  # no suffix of ours, or no name that a file can have
        return False
    return " " not in text


def open_table(path: str, format: str | None) -> Table:
    """A file, or `-` for standard input."""
    return read_stream(sys.stdin.buffer, format or "jsonl") if path == "-" else read_table(path)


def table_items(
    table: Table, model: MultiExitModel, text: str | None, pair: str | None, keep: Sequence[str]
) -> Iterator[Item]:
    """The rows of a table. Columns that are not named are those the model was trained on, or found by their names."""
    columns = columns_of(table, model, text, pair)
    for column in keep:
        table.require(column, "--keep")
    return (_item(table, record, columns, keep) for record in table)


def _item(table: Table, record: Record, columns: Columns, keep: Sequence[str]) -> Item:
    first = text_cell(table, record, columns.text)
    texts = first if columns.pair is None else (first, text_cell(table, record, columns.pair))
    return texts, {column: record.values.get(column) for column in keep}


def columns_of(table: Table, model: MultiExitModel, text: str | None, pair: str | None) -> Columns:
    trained = training_record(model).get("task", {})
    if text is None and trained.get("text") in table.columns:
        text, pair = trained["text"], pair or trained.get("text_pair")
    columns = find_columns(table, text, pair, None, needs_label=False)
    wants_pairs = takes_pairs(model)
    if wants_pairs is not None and wants_pairs != (columns.pair is not None):
        raise OfframpError(
            f"{table.source}: the model answers {'pairs of texts' if wants_pairs else 'single texts'}: "
            f"name the {'columns with --text and --text-pair' if wants_pairs else 'column with --text'}"
        )
    return columns


def line_items(model: MultiExitModel) -> Iterator[Item]:
    """Standard input, one text a line."""
    lines = Lines(sys.stdin.buffer, "standard input")
    pairs = takes_pairs(model)
    for line in lines:
        cells = line.rstrip("\r\n").split("\t")
        if pairs and len(cells) != 2:
            raise lines.error("expected two texts with a tab between them")
        if not cells[0].strip():
            raise lines.error("an empty line: expected a text")
        yield (cells[0], cells[1]) if pairs else line.rstrip("\r\n"), {}


def takes_pairs(model: MultiExitModel) -> bool | None:
    """Whether the model was trained on pairs; None where nobody knows."""
    trained = training_record(model).get("task", {})
    if "text" in trained:
        return trained["text_pair"] is not None
    return find_benchmark(trained["name"]).pair if trained.get("name") else None
