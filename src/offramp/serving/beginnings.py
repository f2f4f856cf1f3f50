"""Long texts by their beginnings: what lies far behind the last token that a model takes need not be tokenised."""

from __future__ import annotations

import json
from typing import Any

LETTERS_A_TOKEN = 32
"""Of a beginning: where words are as long as usual, it has several times the tokens that are kept."""
SPLITS = {"BertPreTokenizer", "WhitespaceSplit", "Whitespace"}
"""What cuts a text into words at each space; so do `ByteLevel` and `Metaspace`, where they are not told otherwise."""
BY_WORD = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "Precompiled"}
"""What changes letters within a word; so does a replacement of letters other than spaces."""


def beginning(text: str, most_tokens: int) -> str | None:
    """The first words of a long text, up to a space; None where it is not long, or has no space there."""
    letters = LETTERS_A_TOKEN * most_tokens
    if len(text) <= letters:
        return None
    return text[: max(0, text.rfind(" ", 0, letters + 1))].rstrip(" ") or None


def is_told_by_words(tokenizer: Any) -> bool:
    """Whether the tokens of what stands before a space are the same whatever stands after it.

    Then the tokens of a beginning are the first of the whole text's. It holds where every step is known to look at
    words alone: models of all kinds do (WordPiece, BPE, Unigram), normalizers and pre-tokenizers are asked. A tokenizer
    that keeps the end of a text, or knows tokens with spaces in them, is out.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.truncation_side != "right":
        return False
    if any(" " in token.content for token in backend.get_added_tokens_decoder().values()):
        return False
    splits, changes = _steps(backend.pre_tokenizer, "pretokenizers"), _steps(backend.normalizer, "normalizers")
    return bool(splits) and all(map(_splits_at_spaces, splits)) and all(map(_changes_words, changes))


def _steps(part: Any, inside: str) -> list[dict[str, Any]]:
    """Of a part of a tokenizer, as its file has them."""
    if part is None:
        return []
    known: dict[str, Any] = json.loads(part.__getstate__())
    return list(known[inside]) if known["type"] == "Sequence" else [known]


def _splits_at_spaces(step: dict[str, Any]) -> bool:
    told = {"ByteLevel": "use_regex", "Metaspace": "split"}.get(step["type"])
    return step["type"] in SPLITS or (told is not None and step.get(told) is True)


def _changes_words(step: dict[str, Any]) -> bool:
    if step["type"] == "Replace":  # of a rule we know one, ALBERT's: several spaces are one
        return " " not in step["pattern"].get("String", " ") or step["pattern"] == {"Regex": " {2,}"}
    return step["type"] in BY_WORD
