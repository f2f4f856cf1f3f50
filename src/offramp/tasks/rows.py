"""From the cells of a table to a task's rows: texts, and labels as their numbers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from offramp.errors import OfframpError
from offramp.tasks.tables import Record, Table
from offramp.tasks.task import Examples

WHOLE_NUMBER = re.compile(r"(-?\d+)\.0+")
MINUS_ZERO = "-0"
"""What is left of -0.0, a 0 that was rounded or negated: no label of its own."""


@dataclass(frozen=True)
class Columns:
    """Which column holds what."""

    text: str
    pair: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Rows:
    """What a table says, its labels still as written."""

    table: Table
    lines: list[int]
    texts: list[str]
    pairs: list[str] | None
    labels: list[str] | None
    column: str | None
    """The labels' column."""

    @property
    def asked(self) -> Sequence[Hashable]:
        """What each row asks: its text, or both of them."""
        return self.texts if self.pairs is None else list(zip(self.texts, self.pairs, strict=True))

    def fingerprint(self, cut_by_text: bool = False) -> str:
        """The same for the same rows, in whatever format they are stored; another where they are cut by their texts."""
        digest = hashlib.sha256(b"by text\0" if cut_by_text else b"")
        for column in (self.texts, self.pairs or [], self.labels or []):
            for cell in column:
                digest.update(cell.encode() + b"\0")
            digest.update(b"\1")
        return digest.hexdigest()[:16]

    def examples(self, labels: Sequence[str], keep: Sequence[int] | None = None) -> Examples:
        """The rows with numbered labels; without `labels`, they are numbers themselves. `keep`: only these rows."""
        kept = range(len(self.texts)) if keep is None else keep
        return Examples(
            texts=[self.texts[i] for i in kept],
            pairs=None if self.pairs is None else [self.pairs[i] for i in kept],
            labels=None if self.labels is None else self._numbered(self.labels, labels, kept),
            source=self.table.source,
        )

    def _numbered(self, written: list[str], labels: Sequence[str], kept: Sequence[int]) -> list[int] | list[float]:
        if not labels:
            return [self._number(written[i], i) for i in kept]
        numbers = {label: number for number, label in enumerate(labels)}
        if "0" in numbers:
            numbers.setdefault(MINUS_ZERO, numbers["0"])
        try:
            return [numbers[written[i]] for i in kept]
        except KeyError:
            i = next(i for i in kept if written[i] not in numbers)
            raise self.error(i, f"label {written[i]!r}: expected one of {some_of(labels)}") from None

    def _number(self, written: str, i: int) -> float:
        try:
            number = float(written)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(i, f"label {written!r}: expected a number")
        return number

    def error(self, i: int, message: str) -> OfframpError:
        return OfframpError(f"{self.table.where(self.lines[i])}: {message}")


def read_rows(table: Table, columns: Columns, empty_texts: bool = False, may_lack_labels: bool = False) -> Rows:
    """Every row of a table. Missing labels are an error, unless they may be missing and all are.

    `empty_texts`: whether a text may be empty, as a few are in the benchmarks.
    """
    for column in filter(None, (columns.text, columns.pair, columns.label)):
        table.require(column)
    lines, texts, pairs, labels, unlabelled = [], [], [], [], 0
    for record in table:
        lines.append(record.line)
        texts.append(text_cell(table, record, columns.text, empty_texts))
        if columns.pair:
            pairs.append(text_cell(table, record, columns.pair, empty_texts))
        if columns.label:
            label = label_cell(table, record, columns.label)
            unlabelled = unlabelled or (record.line if label is None else 0)
            labels.append(label or "")
    if not texts:
        raise OfframpError(f"{table.source} holds no rows: expected some below its header")
    labelled = columns.label is not None and not (may_lack_labels and not any(labels))
    if labelled and unlabelled:
        raise OfframpError(f"{table.where(unlabelled)}: no {columns.label!r}: expected a label in every row")
    return Rows(table, lines, texts, pairs if columns.pair else None, labels if labelled else None, columns.label)


def text_cell(table: Table, record: Record, column: str, may_be_empty: bool = False) -> str:
    """The text in a cell."""
    cell = record.values.get(column)
    if isinstance(cell, (int, float)) and not isinstance(cell, bool) and cell == cell:  # NaN: a missing cell
        cell = str(cell)
    if cell is None or cell != cell or (isinstance(cell, str) and not may_be_empty and not cell.strip()):
        raise OfframpError(f"{table.where(record.line)}: {column!r} is empty: expected a text")
    if not isinstance(cell, str):
        raise OfframpError(f"{table.where(record.line)}: {column!r} is a {type(cell).__name__}: expected a text")
    return whole_characters(table, record, column, cell)


def whole_characters(table: Table, record: Record, column: str, cell: str) -> str:
    """The cell, unless it holds half a character, which JSON can escape and nobody can write."""
    try:
        cell.encode()
    except UnicodeEncodeError:
        raise OfframpError(
            f"{table.where(record.line)}: {column!r} holds half a surrogate pair: expected text"
        ) from None
    return cell


def label_cell(table: Table, record: Record, column: str) -> str | None:
    """A label as text, None where it is missing: `1` for 1, 1.0 and `1.0`, `true` for True, names for hub numbers."""
    cell: Any = record.values.get(column)
    names = table.label_names.get(column)
    if names and isinstance(cell, int) and not isinstance(cell, bool):
        if cell >= len(names):
            raise OfframpError(f"{table.where(record.line)}: label {cell}: expected 0 to {len(names) - 1}")
        return names[cell] if cell >= 0 else None  # -1: the hub's sign for an unlabelled row
    if cell is None or cell != cell:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if not isinstance(cell, (str, int, float)):
        raise OfframpError(f"{table.where(record.line)}: {column!r} is a {type(cell).__name__}: expected a label")
    text = whole_characters(table, record, column, str(cell)).strip()
    whole = WHOLE_NUMBER.fullmatch(text)
    return (whole[1] if whole else text) or None


def some_of(labels: Sequence[str], most: int = 12) -> str:
    """`a, b, c`; of many, the first and how many there are."""
    return ", ".join(labels) if len(labels) <= most else f"{', '.join(labels[:most])} … ({len(labels)} labels)"
