"""A vocabulary learned from text: WordPiece as BERT has it, or Unigram (SentencePiece's) as ALBERT has it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, pre_tokenizers, trainers
from transformers import AlbertTokenizer, BertTokenizer, PreTrainedTokenizerBase

from offramp.errors import OfframpError, one_line
from offramp.recipes.base import one_of
from offramp.training.pretraining.text_files import documents

log = logging.getLogger("offramp")

KINDS = ("wordpiece", "unigram")
SMALLEST = 64
"""Words of a vocabulary, at least."""
RARE = 4_000_000
"""A character seen less than once in so many is not learned: large corpora have thousands of them, of all scripts."""
ALPHABET_SHARE = 4
"""At most one word in so many is a single character."""
SEEN_TWICE = 2
UNIGRAM_WORDS = Regex(r"▁?[\p{L}\p{M}]+|▁?\p{N}+|▁?[^\p{L}\p{M}\p{N}▁]+|▁")
"""Letters, digits and signs do not share a word, while it learns: SentencePiece's rule."""
UNIGRAM_TEXT = 8_000_000
"""Characters that Unigram learns from, taken evenly from all the text. Its trainer starts from letters counted in the
whole text and longer pieces counted once a word: on much more text, short words (`▁a`, `▁i`) lose to their letters."""
COUNTED_TEXT = 40_000_000
"""Characters in which the words of a vocabulary that is cut are counted, taken evenly from all the text."""
ENDS = tuple(".!?…。！？")
WORDPIECE_OPTIONS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""What makes a WordPiece tokenizer besides its words."""
CLOSING = "\"'”’»)]}"


def train_vocabulary(
    files: Sequence[Path], kind: str, size: int, lowercase: bool = True, max_length: int = 512
) -> PreTrainedTokenizerBase:
    """A tokenizer with at most `size` words, special tokens among them; fewer, with a warning, if the text has no more.

    The same text gives the same words with the same ids. The trainers of `tokenizers` number words in the order of a
    hash table; here the alphabet is given to them in order (WordPiece), or words are sorted afterwards (Unigram).
    """
    one_of("vocabulary", kind, KINDS)
    if size < SMALLEST:
        raise OfframpError(f"a vocabulary of {size} words: expected {SMALLEST} or more")
    train = _wordpiece if kind == "wordpiece" else _unigram
    tokenizer = train(files, size, do_lower_case=lowercase, model_max_length=max_length)
    if len(tokenizer) < size:
        log.warning("the text has but %d words for a vocabulary of %d: it is that small", len(tokenizer), size)
    return tokenizer


def cut_vocabulary(tokenizer: PreTrainedTokenizerBase, files: Sequence[Path], size: int) -> PreTrainedTokenizerBase:
    """A WordPiece vocabulary without the words that this text needs least; those that stay keep their order.

    Special tokens and single characters always stay, so that every word can still be written.
    """
    if not isinstance(tokenizer, BertTokenizer):
        raise OfframpError(f"only WordPiece vocabularies can be cut, and {tokenizer.name_or_path} has another kind")
    if size >= len(tokenizer):
        return tokenizer
    encode = tokenizer.backend_tokenizer
    encode.no_truncation()
    encode.no_padding()
    length = sum(len(paragraph) for paragraph in _text(files, set()))
    counts: Counter[int] = Counter()
    for paragraph in _some(_text(files, set()), COUNTED_TEXT / max(1, length)):
        counts.update(encode.encode(paragraph, add_special_tokens=False).ids)
    words = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    needed = [word for word in words if word in special or len(word.removeprefix("##")) == 1]
    others = sorted(words.keys() - set(needed), key=lambda word: (-counts[words[word]], words[word]))
    if len(needed) > size:
        raise OfframpError(f"a vocabulary of {size} words: its {len(needed)} characters and special tokens stay, too")
    kept = sorted([*needed, *others[: size - len(needed)]], key=words.__getitem__)
    options: dict[str, Any] = {key: tokenizer.init_kwargs.get(key) for key in WORDPIECE_OPTIONS}
    return BertTokenizer(
        vocab={word: id for id, word in enumerate(kept)}, model_max_length=tokenizer.model_max_length, **options
    )


def sentence_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids of the words that end a sentence: full stops and the like, with or without a closing quote."""
    bare = {id: _bare(word) for word, id in tokenizer.get_vocab().items()}
    return sorted(id for id, word in bare.items() if word.rstrip(CLOSING).endswith(ENDS) and not _has_letters(word))


def _bare(word: str) -> str:
    """A word without the sign that it begins or goes on: WordPiece's, SentencePiece's, byte-level BPE's."""
    return word.removeprefix("##").lstrip("▁Ġ")


def _has_letters(word: str) -> bool:
    return any(letter.isalnum() for letter in word)


def _wordpiece(files: Sequence[Path], size: int, **options: Any) -> PreTrainedTokenizerBase:
    empty = BertTokenizer(**options)
    learner = empty.backend_tokenizer
    alphabet, rare, _ = _alphabet(files, learner, size)
    cut = learner.pre_tokenizer.pre_tokenize_str
    going_on = ["##" + letter for letter in alphabet if len(cut("a" + letter)) == 1]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=SEEN_TWICE,
        show_progress=False,
        # The trainer would number these in the order of a hash table, and break ties between words by these numbers.
        special_tokens=[*_special(empty), *going_on],
    )
    learner.train_from_iterator(_text(files, rare), trainer)
    return BertTokenizer(vocab=learner.get_vocab(with_added_tokens=False), **options)


def _unigram(files: Sequence[Path], size: int, **options: Any) -> PreTrainedTokenizerBase:
    # By itself the class gives pairs no token types; and what keeps capitals keeps accents too, as BERT does.
    options |= {"model_input_names": BertTokenizer.model_input_names, "keep_accents": not options["do_lower_case"]}
    empty = AlbertTokenizer(**options)
    learner = empty.backend_tokenizer
    _, rare, length = _alphabet(files, learner, size)
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [learner.pre_tokenizer, pre_tokenizers.Split(UNIGRAM_WORDS, "isolated")]
    )
    special = _special(empty)
    trainer = trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, special_tokens=special, unk_token=str(empty.unk_token)
    )
    try:
        learner.train_from_iterator(_some(_text(files, rare), UNIGRAM_TEXT / length), trainer)
    except Exception as error:  # what the Rust side raises has no class of its own
        raise OfframpError(f"no Unigram vocabulary of {size} words from this text ({one_line(error)})") from error
    return AlbertTokenizer(vocab=_in_order(learner, special), **options)


def _in_order(learner: Tokenizer, special: list[str]) -> list[tuple[str, float]]:
    """The words with their scores, likeliest first, whatever the order they were counted in.

    Sums in another order differ in their last digits: scores are rounded. Letters that were to go and are kept because
    every letter is, get the lowest score plus 0.0001 for each of them, in any order: here they all get the lowest.
    """
    scores = {word: score for word, score in json.loads(learner.to_str())["model"]["vocab"] if word not in special}
    lowest = min(scores.values())
    letters = [word for word in scores if len(word) == 1]
    for letter in letters:
        if scores[letter] < lowest + 0.0001 * (len(letters) + 1):
            scores[letter] = lowest
    ranked = sorted(((word, round(score, 4)) for word, score in scores.items()), key=lambda pair: (-pair[1], pair[0]))
    return [(word, 0.0) for word in special] + ranked


def _special(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return [str(getattr(tokenizer, name)) for name in names]


def _text(files: Sequence[Path], rare: set[str]) -> Iterator[str]:
    """All paragraphs, with a space for each rare character."""
    blank = dict.fromkeys(map(ord, rare), " ")
    for file in files:
        for paragraphs in documents(file):
            for paragraph in paragraphs:
                yield paragraph if rare.isdisjoint(paragraph) else paragraph.translate(blank)


def _some(paragraphs: Iterable[str], share: float) -> Iterator[str]:
    """About this share of the text, evenly: all of it where it is 1 or more."""
    owed = 0.0
    for paragraph in paragraphs:
        owed += share * len(paragraph)
        if owed > 0:
            yield paragraph
            owed -= len(paragraph)


def _alphabet(files: Sequence[Path], learner: Tokenizer, size: int) -> tuple[list[str], set[str], int]:
    """The characters to learn, as they are after normalising; those of the text that are too rare; its length."""
    counts = np.zeros(0x110000, np.int64)
    for file in files:
        for paragraphs in documents(file):
            codes = np.frombuffer("".join(paragraphs).encode("utf-32-le"), np.uint32)
            letters, times = np.unique(codes, return_counts=True)
            counts[letters] += times
    normal = {chr(code): learner.normalizer.normalize_str(chr(code)).strip() for code in np.flatnonzero(counts)}
    seen: Counter[str] = Counter()
    for letter, becomes in normal.items():
        for each in becomes:
            seen[each] += int(counts[ord(letter)])
    least = seen.total() / RARE
    often = sorted((letter for letter in seen if seen[letter] >= least), key=lambda letter: (-seen[letter], letter))
    alphabet = set(often[: size // ALPHABET_SHARE])
    rare = {letter for letter, becomes in normal.items() if not alphabet.issuperset(becomes)}
    return sorted(alphabet), rare, int(counts.sum())
