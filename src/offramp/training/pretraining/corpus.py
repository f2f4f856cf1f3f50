"""A corpus ready to learn from: its vocabulary and its tokens, in one folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from offramp.errors import OfframpError, one_line
from offramp.interop.checkpoint import read_checkpoint, read_json
from offramp.training.plan import write_json
from offramp.training.pretraining.rows import Words, words_of
from offramp.training.pretraining.text_files import text_files
from offramp.training.pretraining.token_store import TokenStore, open_store, tokenise
from offramp.training.pretraining.vocabulary import KINDS, cut_vocabulary, sentence_ends, train_vocabulary
from offramp.whole_folder import whole_folder

VOCABULARY = "vocabulary"
TOKENS = "tokens"
USUAL_SIZE = 16_384
WISH = "made_by.json"
"""What was asked for when the vocabulary was made."""


@dataclass(frozen=True)
class Corpus:
    """Tokens, and the vocabulary that made them."""

    folder: Path
    tokenizer: Any
    store: TokenStore

    @cached_property
    def words(self) -> Words:
        return words_of(self.tokenizer, sentence_ends(self.tokenizer))

    @property
    def about(self) -> dict[str, Any]:
        """What it was made from."""
        return dict(self.store.made_from)

    @property
    def digest(self) -> str:
        """The same for the same text, vocabulary and held-out documents."""
        return hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()[:16]


def prepare_corpus(
    text: Sequence[str | Path],
    folder: str | Path,
    vocabulary: str | Path = "wordpiece",
    *,
    size: int | None = None,
    lowercase: bool = True,
    held_out: float = 0.005,
    seed: int = 0,
) -> Corpus:
    """Read text files into `folder`, or open what an earlier call left there.

    Args:
        text: files or folders: plain text, .gz, .xz, .bz2, Parquet. Nothing: open `folder`.
        vocabulary: `wordpiece` or `unigram` to learn one from the text, or a folder or hub name to take it from.
        size: of a new vocabulary (default: 16,384), or to cut one to that is taken: to the words this text has most.
        lowercase: whether a new vocabulary does away with capitals.
        held_out: the share of the text, in whole documents, that is kept for scoring.
    """
    folder = Path(folder)
    if not text:
        return open_corpus(folder)
    files = text_files([Path(path) for path in text])
    tokenizer = _vocabulary(files, folder, vocabulary, size, lowercase)
    return Corpus(folder, tokenizer, tokenise(files, tokenizer, folder / TOKENS, held_out=held_out, seed=seed))


def open_corpus(folder: Path) -> Corpus:
    """What `prepare_corpus` left in a folder."""
    if not (folder / TOKENS).is_dir():
        raise OfframpError(f"{folder} holds no tokens yet: name text files (--text)")
    store = open_store(folder / TOKENS)
    return Corpus(folder, read_vocabulary(folder / VOCABULARY), store)


def _vocabulary(files: Sequence[Path], folder: Path, wanted: str | Path, size: int | None, lowercase: bool) -> Any:
    """The vocabulary that lies in the corpus, if it was made as is wished now; or a new one, which then lies there."""
    made, learnt = folder / VOCABULARY, str(wanted) in KINDS
    wish: dict[str, Any] = {"taken_from": str(wanted)} | ({"size": size} if size else {})
    if learnt:
        wish = {"kind": str(wanted), "size": size or USUAL_SIZE, "lowercase": lowercase}
    if made.is_dir():
        if (was := read_json(made / WISH)) != wish:
            raise OfframpError(f"{made} was made from {was}, and now {wish} is asked for: name another --corpus")
        return read_vocabulary(made)
    if learnt:
        tokenizer = train_vocabulary(files, str(wanted), wish["size"], lowercase)
    else:
        tokenizer = read_vocabulary(Path(wanted) if Path(wanted).is_dir() else read_checkpoint(wanted).folder)
        tokenizer = cut_vocabulary(tokenizer, files, size) if size else tokenizer
    with whole_folder(made) as new:
        tokenizer.save_pretrained(new)
        write_json(new / WISH, wish)
    return tokenizer


def read_vocabulary(folder: Path) -> Any:
    """The tokenizer in a folder."""
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, TypeError) as error:
        raise OfframpError(f"{folder} holds no vocabulary that can be read ({one_line(error)})") from error
