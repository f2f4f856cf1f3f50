"""Texts to rows, one by one: an item that is no text fails alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from offramp.backbones import Backbone
from offramp.tasks.encoding import Row, TextEncoder

EMPTY = "the text is empty: expected some words"

Text = str | tuple[str, str]
"""A text, or a pair of texts."""
HALF = re.compile("[\ud800-\udfff]")
"""A lone surrogate; texts can be long, and this is the quickest way to see whether they have one."""


@dataclass(frozen=True)
class NoText:
    """What stands in a text's place where there is none: why."""

    why: str


def encode_texts(encoder: TextEncoder, backbone: Backbone, items: Sequence[Any]) -> list[Row | str]:
    """The row of each text or pair of texts, or what is wrong with it."""
    rows: list[Row | str] = [what_is_wrong(item) or "" for item in items]
    singles = [place for place, item in enumerate(items) if not rows[place] and isinstance(item, str)]
    pairs = [place for place, item in enumerate(items) if not rows[place] and not isinstance(item, str)]
    encoded = encoder([items[place] for place in singles])
    encoded += encoder([items[place][0] for place in pairs], [items[place][1] for place in pairs])
    for place, row in zip([*singles, *pairs], encoded, strict=True):
        rows[place] = wrong_tokens(backbone, row) or row
    return rows


def what_is_wrong(item: Any) -> str | None:
    if isinstance(item, NoText):
        return item.why
    parts = item if isinstance(item, tuple) and len(item) == 2 else (item,)
    for part in parts:
        if not isinstance(part, str):
            return f"expected a text, or a pair of texts, not {part!r:.40}"
        if not part.strip():
            return EMPTY
        if HALF.search(part):
            return "the text holds half a character (a lone surrogate): it was cut or decoded wrongly"
    return None


def checked_rows(backbone: Backbone, rows: Sequence[Row]) -> list[Row | str]:
    """Rows that come encoded: those that the backbone cannot take, as what is wrong with them."""
    return [wrong_tokens(backbone, row) or row for row in rows]


def wrong_tokens(backbone: Backbone, row: Any) -> str | None:
    if not isinstance(row, Row) or not are_whole(row.input_ids) or not are_whole(row.token_type_ids, or_nothing=True):
        return f"expected a Row of whole numbers, not {row!r:.40}"
    if len(row) == 0:
        return "the row is empty: expected at least one token"
    if len(row) > backbone.max_length:
        return f"{len(row)} tokens, but the backbone takes {backbone.max_length}: truncate the text"
    if min(row.input_ids) < 0 or max(row.input_ids) >= backbone.vocab_size:
        return f"a token id is outside the vocabulary of {backbone.vocab_size}: use the model's own tokenizer"
    kinds = row.token_type_ids
    if kinds is not None and (len(kinds) != len(row) or min(kinds) < 0 or max(kinds) >= types_of(backbone)):
        return f"token_type_ids must be {len(row)} numbers below {types_of(backbone)}"
    return None


def are_whole(numbers: Any, or_nothing: bool = False) -> bool:
    """Whether it is a list, or a tuple, of whole numbers."""
    if numbers is None:
        return or_nothing
    return isinstance(numbers, list | tuple) and all(isinstance(number, int | np.integer) for number in numbers)


def types_of(backbone: Backbone) -> int:
    return int(backbone.config.type_vocab_size)
