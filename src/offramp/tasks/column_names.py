"""Which columns of a user's file hold the text and the label, told by their names."""

from __future__ import annotations

from collections.abc import Sequence

from offramp.errors import OfframpError
from offramp.tasks.rows import Columns
from offramp.tasks.tables import Table

TEXTS = (
    *("text", "texts", "sentence", "review", "content", "comment", "document", "body", "message", "tweet", "headline"),
    *("question", "query", "utterance", "input"),
)
PAIRS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question", "answer"),
    ("question", "passage"),
    ("text", "text_pair"),
    ("#1 string", "#2 string"),
)
LABELS = (
    *("label", "labels", "gold_label", "class", "target", "category", "sentiment", "topic", "intent", "quality"),
    *("score", "rating", "stars", "is_duplicate", "y"),
)


def find_columns(table: Table, text: str | None, pair: str | None, label: str | None, needs_label: bool) -> Columns:
    """The columns that are named, and where none is named, those whose names leave no doubt."""
    if label is not None:
        if needs_label:
            table.require(label, "--label")
    else:
        label = _only(table, [c for c in table.columns if c.lower() in LABELS], "label", "--label", needs_label)
    free = [column for column in table.columns if column != label]
    if pair is not None:
        table.require(pair, "--text-pair")
        free = [column for column in free if column != pair]
    if text is not None:
        if text in (label, pair):
            other = "label" if text == label else "second text"
            raise OfframpError(f"{table.source}: column {text!r} cannot be the text, for it is the {other}")
        return Columns(table.require(text, "--text"), pair, label)
    pairs = _pairs(free)
    members = {column for found in pairs for column in found}
    texts = [column for column in free if column.lower() in TEXTS and column not in members]
    if pair is None and len(pairs) == 1 and not texts:
        return Columns(*pairs[0], label)
    candidates = texts + sorted(members, key=table.columns.index)
    found = _only(table, candidates, "text", "--text (and --text-pair for pairs)", needed=True)
    assert found is not None
    return Columns(found, pair, label)


def _pairs(columns: Sequence[str]) -> list[tuple[str, str]]:
    by_name = {column.lower(): column for column in columns}
    return [(by_name[first], by_name[second]) for first, second in PAIRS if first in by_name and second in by_name]


def _only(table: Table, candidates: list[str], what: str, option: str, needed: bool) -> str | None:
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and not needed:
        return None
    named = ", ".join(map(repr, candidates or table.columns))
    doubt = f"{named} could each be the {what}" if candidates else f"no column is named like a {what}: it has {named}"
    if len(table.columns) == 1 and ";" in table.columns[0]:
        raise OfframpError(f"{table.source}: {doubt}: it seems to be separated by semicolons; save it with commas")
    raise OfframpError(f"{table.source}: {doubt}; name the column with {option}")
