"""Questions on texts in, spans of the texts out, in the same order and as a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from offramp.engine import Engine, RowAnswer
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.tasks.encoding import Row
from offramp.tasks.squad import Answer, Question, Questions, Window, find_answers, window_encoder
from offramp.tasks.squad.answers import ANSWER_TOKENS, N_BEST

QUESTIONS = 64
"""Read, and cut into windows, at a time."""


class SpanPrediction(NamedTuple):
    """The answer to one question."""

    text: str
    """A span of the context; empty for "there is no answer"."""
    score: float
    """Its probability among the candidates of the question."""
    exit_layers: tuple[int, ...]
    """Where each window on the context left."""
    answer: Answer
    """With the candidates and the odds of no answer."""

    @property
    def exit_layer(self) -> float:
        """Layers that were run, on average over the windows."""
        return sum(self.exit_layers) / len(self.exit_layers)


class SpanPredictor:
    """A model that answers questions with spans, under a policy; each window on a context leaves by itself.

    Args:
        model: a model, or the folder of one.
        policy: when to leave; default: the one in the model's folder or, where there is none, full depth.
        max_length: tokens in a window; default: as in training.
        device, precision, backend, batch_size, threads: as `Engine` takes them; a batch is of windows.
        n_best: candidates kept for each question.
        max_answer_tokens: longer spans are no answers.
        null_threshold: answer with nothing where that scores so much more than the best span; default: 0 for questions
            of SQuAD 2.0, and otherwise never.
    """

    def __init__(
        self,
        model: MultiExitModel | str | Path,
        policy: Policy | str | None = None,
        *,
        max_length: int | None = None,
        n_best: int = N_BEST,
        max_answer_tokens: int = ANSWER_TOKENS,
        null_threshold: float | None = None,
        tokenizer: Any = None,
        **options: Any,
    ) -> None:
        self.engine = Engine(model, policy, **options)
        self.model, self.policy = self.engine.model, self.engine.policy
        if self.model.objective.name != "span":
            raise OfframpError("this model answers with labels or numbers: use Engine, or offramp.predict")
        for name, value in (("n_best", n_best), ("max_answer_tokens", max_answer_tokens)):
            if value < 1:
                raise OfframpError(f"{name} must be 1 or more, not {value}")
        self.encoder = window_encoder(self.model, max_length, tokenizer=tokenizer)
        self.n_best = n_best
        self.max_answer_tokens = max_answer_tokens
        self.null_threshold = null_threshold
        self.at_a_time = QUESTIONS

    def stream(self, pairs: Iterable[tuple[str, str]]) -> Iterator[SpanPrediction]:
        """Answers to (question, context), in their order; reads ahead a little, and holds no more than that."""
        questions = (_question(number, pair) for number, pair in enumerate(pairs))
        return self._stream(questions, may_be_empty=self.null_threshold is not None)

    def stream_questions(self, questions: Questions) -> Iterator[SpanPrediction]:
        """Answers to the questions of a file, in their order."""
        return self._stream(iter(questions.questions), self.may_be_empty(questions))

    def may_be_empty(self, questions: Questions) -> bool:
        """Whether "there is no answer" is one."""
        return questions.version2 or self.null_threshold is not None

    def _stream(self, questions: Iterator[Question], may_be_empty: bool) -> Iterator[SpanPrediction]:
        parts: deque[tuple[Questions, list[Window]]] = deque()  # what was read, and is not answered yet

        def rows() -> Iterator[Row]:
            for read in in_parts(questions, self.at_a_time):
                asked = Questions(read, version2=may_be_empty, source="", labelled=False)
                parts.append((asked, self.encoder(asked)))
                yield from [window.row for window in parts[-1][1]]

        answers = self.engine.answer_rows(rows())
        for first in answers:
            asked, windows = parts.popleft()
            yield from self._predictions(asked, windows, [first, *islice(answers, len(windows) - 1)])

    def _predictions(
        self, asked: Questions, windows: Sequence[Window], left: Sequence[RowAnswer]
    ) -> Iterator[SpanPrediction]:
        """Answers to questions, from what each window on their contexts left with."""
        layers_of: list[list[int]] = [[] for _ in asked.questions]
        logits = []
        for window, answer in zip(windows, left, strict=True):
            if answer.logits is None or answer.exit_layer is None:
                raise OfframpError(f"question {asked.questions[window.question].id}: {answer.error}")
            logits.append(answer.logits)
            layers_of[window.question].append(answer.exit_layer)
        found = find_answers(
            asked,
            windows,
            logits,
            n_best=self.n_best,
            max_answer_tokens=self.max_answer_tokens,
            null_threshold=self.null_threshold or 0.0,
        )
        for one, layers in zip(found, layers_of, strict=True):
            yield SpanPrediction(one.text, _probability(one), tuple(layers), one)


def in_parts(items: Iterator[Question], most: int) -> Iterator[list[Question]]:
    """So many questions at a time, until there are none. An error comes after the questions before it."""
    read: list[Question] = []
    try:
        for item in items:
            read.append(item)
            if len(read) == most:
                yield read
                read = []
    except OfframpError:
        if read:
            yield read
        raise
    if read:
        yield read


def _question(number: int, pair: Any) -> Question:
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise OfframpError(f"item {number} is no pair of texts: the model answers (question, context)")
    if not pair[0].strip():  # a context may be: then there is no answer
        raise OfframpError(f"question {number} is empty: expected some words")
    question, context = pair
    return Question(str(number), question, context, answers=(), starts=(), impossible=False)


def _probability(answer: Answer) -> float:
    return next(candidate.probability for candidate in answer.nbest if candidate.text == answer.text)
