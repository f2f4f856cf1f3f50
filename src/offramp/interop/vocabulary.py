"""A checkpoint's tokenizer: does it fit the model, and bring it along on conversion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import AlbertTokenizer, AutoTokenizer, BertTokenizer, RobertaTokenizer

from offramp.errors import OfframpError, one_line
from offramp.typed_json import read_object

TOKENIZERS: dict[str, Any] = {
    "bert": BertTokenizer,
    "elasticbert": BertTokenizer,
    "roberta": RobertaTokenizer,
    "albert": AlbertTokenizer,
}
GOOGLE_PIECES = "30k-clean.model"
PIECES = "spiece.model"
STRANGE_WORD = "\u16a0\u16c7"
"""In runes, which few vocabularies have."""
FILES = ("tokenizer.json", "vocab.txt", "vocab.json", PIECES, GOOGLE_PIECES)


def check_vocabulary(folder: Path, vocab_size: int) -> None:
    """Refuse a tokenizer that knows tokens the model has no embedding for."""
    for name in ("tokenizer.json", "vocab.txt", "vocab.json"):
        path = folder / name
        tokens = _count_tokens(path) if path.is_file() else 0
        if tokens > vocab_size:
            raise OfframpError(
                f"{path} has {tokens} tokens, but the model's vocabulary is {vocab_size}: it belongs to another model"
            )


def _count_tokens(path: Path) -> int:
    try:
        if path.suffix == ".txt":  # one token a line; some tokens are what Unicode calls line ends
            return len(path.read_text(encoding="utf-8").rstrip("\n").split("\n"))
        data = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = data["model"]["vocab"] if path.name == "tokenizer.json" else data
        added = [token["id"] + 1 for token in data.get("added_tokens", [])] if path.name == "tokenizer.json" else []
        return max([len(vocabulary), *map(int, added)])
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise OfframpError(f"{path} is not a tokenizer file ({one_line(error)}); copy the model again") from error


def find_tokenizer(folder: Path, family: str) -> Any | None:
    """The tokenizer that lies in a checkpoint folder, or None where there is none."""
    present = [name for name in FILES if (folder / name).is_file()]
    if not present:
        return None
    if present[0] in (PIECES, GOOGLE_PIECES) and not all(map(_installed, ("sentencepiece", "google.protobuf"))):
        raise OfframpError(f"{folder / present[0]} can be read with: pip install sentencepiece protobuf")
    try:
        tokenizer = _opened(folder, family, present)
        tokenizer(STRANGE_WORD)  # a vocabulary without a word for what it does not know shows only here
        return tokenizer
    except Exception as error:  # tokenizers raises Exception itself
        raise OfframpError(f"{folder}: the tokenizer files cannot be read ({one_line(error)})") from error


def _opened(folder: Path, family: str, present: Sequence[str]) -> Any:
    settings = folder / "tokenizer_config.json"
    if settings.is_file() and "tokenizer_class" in read_object(settings):
        return AutoTokenizer.from_pretrained(folder)
    if present == [GOOGLE_PIECES]:
        return AlbertTokenizer.from_pretrained(folder, vocab_file=str(folder / GOOGLE_PIECES))
    return TOKENIZERS[family].from_pretrained(folder)


def _installed(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True
