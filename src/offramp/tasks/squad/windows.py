"""Questions to windows: a context longer than the model takes is read in overlapping pieces, each with the question."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.tasks.encoding import AT_A_TIME, Row, find_model_tokenizer, pad_rows, tokens_at_most
from offramp.tasks.squad.questions import Question, Questions

log = logging.getLogger("offramp")

LENGTH, STRIDE, QUESTION = 384, 128, 64
"""BERT's settings for SQuAD, and EBERT's: tokens in a window, from window to window, and of a question at most."""

Range = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """`[CLS] question [SEP] a piece of the context [SEP]`."""

    row: Row
    question: int
    """Its place in `Questions.questions`."""
    characters: tuple[Range | None, ...]
    """For each token, its first character in the context and its end, without white space; None outside the context."""
    best_context: tuple[bool, ...]
    """Of the windows with a token, the one where it has most context on its worse side. Answers start in it alone."""
    start: int
    """The first answer's first token; 0, the place of `[CLS]`, where the window does not hold all of it."""
    end: int
    """The first answer's last token, or 0."""


@dataclass(frozen=True)
class _Text:
    """A text as tokens, and where each lies in it."""

    ids: list[int]
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class _Frame:
    """The special tokens before, between and after question and context, and their token types."""

    before: list[int]
    between: list[int]
    after: list[int]
    types: tuple[int, int, int, int, int]
    """Of: before, question, between, context, after."""

    def __len__(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


@dataclass(frozen=True)
class WindowEncoder:
    """Windows of at most `max_length` tokens; each begins `stride` context tokens after the one before.

    A window never begins beyond the end of the one before, whatever the stride: every token of the context is in a
    window. A question is cut to its first `max_question` tokens. A question without context gets a window without
    context.
    """

    tokenizer: Any
    max_length: int = LENGTH
    stride: int = STRIDE
    max_question: int = QUESTION
    token_types: bool = True
    """Whether the backbone tells question and context apart by token types: BERT and ALBERT do, RoBERTa does not."""

    def __post_init__(self) -> None:
        if not getattr(self.tokenizer, "is_fast", False):
            raise OfframpError(
                f"{type(self.tokenizer).__name__} does not say where in a text its tokens lie, which answers are cut "
                "out by: use the fast tokenizer of this family (tokenizer.json)"
            )
        for name in ("max_length", "stride", "max_question"):
            if getattr(self, name) < 1:
                raise OfframpError(f"{name} {getattr(self, name)}: expected 1 token or more")

    def __call__(self, questions: Questions) -> list[Window]:
        """The windows of all questions, in order; every question has one at least."""
        asked = self._encode([question.question for question in questions.questions])
        places = {context: i for i, context in enumerate(dict.fromkeys(q.context for q in questions.questions))}
        contexts = self._encode(list(places))
        if cut := sum(len(text.ids) > self.max_question for text in asked):
            of = f"{questions.source}: " if questions.source else ""
            log.warning("%s%d questions are longer than %d tokens and are cut", of, cut, self.max_question)
        windows: list[Window] = []
        for number, (question, text) in enumerate(zip(questions.questions, asked, strict=True)):
            windows += self._windows(
                number, question, text.ids[: self.max_question], contexts[places[question.context]]
            )
        return windows

    def pad(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        """A batch for the model, padded on the right to its longest row."""
        return pad_rows(rows, int(self.tokenizer.pad_token_id or 0))

    def _encode(self, texts: Sequence[str]) -> list[_Text]:
        found: list[_Text] = []
        for first in range(0, len(texts), AT_A_TIME):  # the tokenizer holds much more than it gives
            part = list(texts[first : first + AT_A_TIME])
            encoded = self.tokenizer(
                part,
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,  # a text longer than the model takes is what windows are for
            )
            together = zip(part, encoded["input_ids"], encoded["offset_mapping"], strict=True)
            found += [_Text(ids, tuple(_trimmed(text, *place) for place in places)) for text, ids, places in together]
        return found

    @cached_property
    def _frame(self) -> _Frame:
        encoded = self.tokenizer("a", "a", return_token_type_ids=True)
        ids, types, texts = encoded["input_ids"], encoded["token_type_ids"], encoded.sequence_ids(0)
        a, b = texts.index(0), texts.index(1)
        after_a, after_b = len(texts) - texts[::-1].index(0), len(texts) - texts[::-1].index(1)
        kinds = (types[0], types[a], types[after_a], types[b], types[after_b])
        return _Frame(ids[:a], ids[after_a:b], ids[after_b:], kinds)

    def _windows(self, number: int, question: Question, asked: list[int], context: _Text) -> Iterator[Window]:
        room = self.max_length - len(self._frame) - len(asked)
        if room < 1:
            raise OfframpError(
                f"a window of {self.max_length} tokens has no room for question {question.id!r} ({len(asked)} tokens), "
                f"{len(self._frame)} special tokens and any context: use a larger max_length or a smaller max_question"
            )
        pieces = _pieces(len(context.ids), room, min(self.stride, room))
        best = _best_contexts(pieces)
        gold = _tokens_of(question.span, context.ranges)
        before = len(self._frame.before) + len(asked) + len(self._frame.between)
        for (first, end), in_best in zip(pieces, best, strict=True):
            inside = gold is not None and first <= gold[0] and gold[1] < end
            start_end = (gold[0] - first + before, gold[1] - first + before) if gold and inside else (0, 0)
            after = len(self._frame.after)
            yield Window(
                self._row(asked, context.ids[first:end]),
                number,
                (None,) * before + context.ranges[first:end] + (None,) * after,
                (False,) * before + in_best + (False,) * after,
                *start_end,
            )

    def _row(self, asked: list[int], context: list[int]) -> Row:
        frame = self._frame
        parts = (frame.before, asked, frame.between, context, frame.after)
        kinds = [kind for kind, part in zip(frame.types, parts, strict=True) for _ in part]
        return Row([token for part in parts for token in part], kinds if self.token_types else None)


def window_encoder(
    model: MultiExitModel, max_length: int | None = None, stride: int | None = None, tokenizer: Any = None
) -> WindowEncoder:
    """The encoder for a model: its own tokenizer, and no more tokens than it takes.

    Length and stride are, where none are given, those the model was trained with, or 384 and 128. A question may take
    64 tokens of a window, and no more than half.
    """
    tokenizer = find_model_tokenizer(model) if tokenizer is None else tokenizer
    length = tokens_at_most(model, max_length, LENGTH)
    return WindowEncoder(
        tokenizer,
        length,
        (model.config.window_stride or STRIDE) if stride is None else stride,
        min(QUESTION, length // 2),
        token_types=model.backbone.config.type_vocab_size > 1,
    )


def _trimmed(text: str, first: int, end: int) -> Range:
    """Without the white space that SentencePiece counts to a word."""
    while first < end and text[first].isspace():
        first += 1
    while end > first and text[end - 1].isspace():
        end -= 1
    return first, end


def _pieces(tokens: int, room: int, step: int) -> list[Range]:
    """Where the windows on a context of so many tokens begin and end."""
    first = 0
    pieces = [(0, min(room, tokens))]
    while pieces[-1][1] < tokens:
        first += step
        pieces.append((first, min(first + room, tokens)))
    return pieces


def _best_contexts(pieces: list[Range]) -> list[tuple[bool, ...]]:
    """For each window and token in it: whether no other window has more context for it.

    That is min(tokens to the left, tokens to the right) + 0.01 · tokens in the window, as BERT has it; the first of
    equals.
    """
    if len(pieces) == 1:
        return [(True,) * pieces[0][1]]
    tokens = np.arange(pieces[-1][1])
    firsts, ends = np.array(pieces).T[:, :, None]  # (W, 1) each
    context = np.minimum(tokens - firsts, ends - 1 - tokens) + 0.01 * (ends - firsts)
    best = np.where((firsts <= tokens) & (tokens < ends), context, -np.inf).argmax(0)  # (tokens,)
    return [tuple((best[first:end] == number).tolist()) for number, (first, end) in enumerate(pieces)]


def _tokens_of(span: Range | None, ranges: tuple[Range, ...]) -> Range | None:
    """First and last token that share a character with the span; none where the tokenizer left all of it out."""
    if span is None:
        return None
    first = bisect_right([end for _, end in ranges], span[0])
    last = bisect_left(ranges, (span[1],)) - 1
    while first <= last and ranges[first][0] == ranges[first][1]:
        first += 1
    while first <= last and ranges[last][0] == ranges[last][1]:
        last -= 1
    return (first, last) if first <= last else None
