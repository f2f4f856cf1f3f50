"""Texts to rows: a long text is told by its beginning, and whoever has left is not tokenised."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers

from offramp.engine import Text
from offramp.serving.beginnings import LETTERS_A_TOKEN, beginning, is_told_by_words
from offramp.serving.jobs import Job, Request
from offramp.serving.tokenising import EMPTY, LETTERS_AT_ONCE, Tokeniser
from offramp.tasks.encoding import Row, TextEncoder
from tests.tasks.squad_made import TOKENIZERS

MOST = 16
BACKBONE: Any = SimpleNamespace(max_length=512, vocab_size=1000, config=SimpleNamespace(type_vocab_size=2))
WORDS = ["the", "river", "from", "basel", ",", "?", " ", "  ", "\n", "é", "e\u0301", "\u200b", "''", "[SEP]", "x" * 40]


def tokeniser(tokenizer: Any, hand_on: Callable[[Sequence[Job]], None] = lambda jobs: None) -> Tokeniser:
    return Tokeniser(TextEncoder(tokenizer, MOST, True), BACKBONE, hand_on, lambda took: None, lambda error: None)


def written(seed: int) -> str:
    """A long text: words, marks, white space of all kinds, sometimes hardly a space."""
    draw = random.Random(seed)
    between = draw.choice([" ", " ", "  ", "\n", ""])
    return between.join(draw.choice(WORDS) for _ in range(900)) + " the end"


class Reading:
    """A tokenizer that counts the letters it is given."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.letters: list[int] = []
        self.then: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __call__(self, texts: list[str], pairs: list[str] | None = None, **how: Any) -> Any:
        self.letters.append(sum(map(len, [*texts, *(pairs or ())])))
        found = self.tokenizer(texts, pairs, **how)
        self.then()
        return found


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("seed", range(20))
def test_a_beginning_has_the_tokens_of_the_whole_text(family: str, seed: int) -> None:
    tokenizer, text = TOKENIZERS[family](), written(seed)
    [row] = tokeniser(tokenizer).rows_of([text], truncate=True)
    assert row == TextEncoder(tokenizer, MOST, True)([text])[0]
    [refused] = tokeniser(tokenizer).rows_of([text], truncate=False)
    assert "tokens" in str(refused)
    if (first := beginning(text, MOST)) is not None:  # and beyond what is kept
        part, whole = TextEncoder(tokenizer, 10_000, True)([first, text])
        assert part.input_ids[:-1] == whole.input_ids[: len(part) - 1]


@pytest.mark.parametrize("family", TOKENIZERS)
@pytest.mark.parametrize("truncate", [True, False])
def test_of_a_long_text_no_more_is_read_than_is_needed(family: str, truncate: bool) -> None:
    reading = Reading(TOKENIZERS[family]())
    [long, short, surrogate] = tokeniser(reading).rows_of(
        ["the river " * 50_000, "the river", "the river " * 900 + "\ud800"], truncate
    )
    assert len(long) == MOST if truncate else "more than the 16 tokens that the model takes" in str(long)
    assert isinstance(short, Row)
    assert "half a character" in str(surrogate)
    assert sum(reading.letters) <= LETTERS_A_TOKEN * MOST + len("the river")


@pytest.mark.parametrize("text", ["x" * 9000, " " * 9000 + "the river", "\u200b " * 9000 + "the river"])
def test_where_a_beginning_has_too_little_all_is_read(text: str) -> None:
    tokenizer = TOKENIZERS["bert"]()
    for truncate, most in ((True, MOST), (False, 20_000)):
        [row] = tokeniser(tokenizer).rows_of([text], truncate)
        assert row == TextEncoder(tokenizer, most, True)([text])[0]


def test_which_tokenizers_look_at_words_alone() -> None:
    for make in TOKENIZERS.values():
        assert is_told_by_words(make())
    changes: list[Callable[[Any], None]] = [
        lambda one: setattr(one, "truncation_side", "left"),
        lambda one: one.add_tokens([AddedToken("new york")]),
        lambda one: setattr(one.backend_tokenizer, "pre_tokenizer", pre_tokenizers.Metaspace(split=False)),
        lambda one: setattr(one.backend_tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        lambda one: setattr(one.backend_tokenizer, "pre_tokenizer", pre_tokenizers.Split(Regex("a b"), "isolated")),
        lambda one: setattr(one.backend_tokenizer, "normalizer", normalizers.Replace("a b", "c")),
        lambda one: setattr(one.backend_tokenizer, "normalizer", normalizers.Replace(Regex("a."), "c")),
        lambda one: setattr(one.backend_tokenizer, "normalizer", normalizers.Strip()),
    ]
    for change in changes:
        tokenizer = TOKENIZERS["bert"]()
        change(tokenizer)
        assert not is_told_by_words(tokenizer)
    assert not is_told_by_words(SimpleNamespace())


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ("\u0000", False),
        ("\u200b\u200b", False),
        ("\u0301", False),
        ("[SEP]", False),
        ("\u200b the", True),
        ("\u2603", True),
        (("the", "\u200b"), False),
        (("\u200b", "the"), False),
        (("the", "river"), True),
    ],
)
def test_a_text_of_which_no_word_is_left_is_empty(text: Text, answered: bool) -> None:
    [row] = tokeniser(TOKENIZERS["bert"]()).rows_of([text], truncate=True)
    assert isinstance(row, Row) if answered else row == EMPTY


def request(*texts: Text) -> Request:
    nothing: Any = None
    return Request(texts, nothing, nothing, True, nothing, 0.0)


def test_what_is_encoded_together_is_bounded_by_letters() -> None:
    """The many letters of some do not wait in one batch, and who leaves meanwhile is not read."""
    pair = ("x" * (LETTERS_AT_ONCE // 2), "y" * (LETTERS_AT_ONCE // 4))
    handed: list[Sequence[Job]] = []
    reading = Reading(TOKENIZERS["bert"]())
    it = tokeniser(reading, handed.append)
    large, alone, short = request(pair, pair, pair), request(pair), request("the river")
    for one in (large, alone, short):
        it.put(one)
    reading.then = lambda: setattr(large, "gone", True)
    for _ in range(2):
        assert it._turn()
    assert [len(jobs) for jobs in handed] == [3, 2]
    assert [job.row is not None for jobs in handed for job in jobs] == [True, False, False, True, True]
    assert max(reading.letters) <= LETTERS_AT_ONCE


def test_large_and_small_requests_take_turns() -> None:
    """Texts that cannot be told by their beginnings keep nobody waiting for more than one of them."""
    handed: list[Sequence[Job]] = []
    it = tokeniser(TOKENIZERS["bert"](), handed.append)
    large = [request("x" * (LETTERS_AT_ONCE + 1)) for _ in range(3)]
    small = [request("the river"), request("basel")]
    for one in (*large, *small):
        it.put(one)
    for _ in range(4):
        assert it._turn()
    assert [[job.request for job in jobs] for jobs in handed] == [[large[0]], small, [large[1]], [large[2]]]
