"""Questions on texts in, spans of the texts out, in the same order and as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.prediction.under_policy import UnderPolicy
from offramp.tasks.squad import Answer, Question, Questions, Window, find_answers, window_encoder
from offramp.tasks.squad.answers import ANSWER_TOKENS, N_BEST


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


class SpanPredictor(UnderPolicy):
    """A model that answers questions with spans, under a policy; each window on a context leaves by itself.

    Args:
        model: a model, or the folder of one.
        policy: when to leave; default: the one in the model's folder or, where there is none, full depth.
        max_length: tokens in a window; default: as in training.
        batch_size: windows computed together.
        device: `auto` is the GPU where there is one.
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
        batch_size: int = 32,
        device: str = "auto",
        n_best: int = N_BEST,
        max_answer_tokens: int = ANSWER_TOKENS,
        null_threshold: float | None = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(model, policy, batch_size, device)
        if self.model.objective.name != "span":
            raise OfframpError("this model answers with labels or numbers: use Predictor, or offramp.predict")
        for name, value in (("n_best", n_best), ("max_answer_tokens", max_answer_tokens)):
            if value < 1:
                raise OfframpError(f"{name} must be 1 or more, not {value}")
        self.encoder = window_encoder(self.model, max_length, tokenizer=tokenizer)
        self.n_best = n_best
        self.max_answer_tokens = max_answer_tokens
        self.null_threshold = null_threshold

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
        first = 0
        for read in self.in_parts(questions):
            asked = Questions(read, version2=may_be_empty, source="", labelled=False)
            windows = self.encoder(asked)
            logits, layers = self._leave(windows, first)
            answers = find_answers(
                asked,
                windows,
                logits,
                n_best=self.n_best,
                max_answer_tokens=self.max_answer_tokens,
                null_threshold=self.null_threshold or 0.0,
            )
            layers_of: list[list[int]] = [[] for _ in read]
            for window, layer in zip(windows, layers, strict=True):
                layers_of[window.question].append(layer)
            for answer, of_windows in zip(answers, layers_of, strict=True):
                yield SpanPrediction(answer.text, _probability(answer), tuple(of_windows), answer)
            first += len(windows)

    def _leave(self, windows: Sequence[Window], first: int) -> tuple[list[NDArray[np.float32]], list[int]]:
        """The logits (T, 2) that each window leaves with, and its layer."""
        rows = [window.row for window in windows]
        logits: dict[int, NDArray[np.float32]] = {}
        layers: dict[int, int] = {}
        for picked, answer in self.in_batches(rows, self.encoder.pad, first):
            said = answer.logits.float().cpu().numpy()
            logits |= {row: said[place, : len(rows[row])] for place, row in enumerate(picked)}
            layers |= dict(zip(picked, answer.exit_layer.tolist(), strict=True))
        return [logits[row] for row in range(len(rows))], [layers[row] for row in range(len(rows))]


def _question(number: int, pair: Any) -> Question:
    if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise OfframpError(f"item {number} is no pair of texts: the model answers (question, context)")
    if not pair[0].strip():  # a context may be: then there is no answer
        raise OfframpError(f"question {number} is empty: expected some words")
    question, context = pair
    return Question(str(number), question, context, answers=(), starts=(), impossible=False)


def _probability(answer: Answer) -> float:
    return next(candidate.probability for candidate in answer.nbest if candidate.text == answer.text)
