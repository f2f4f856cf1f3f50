"""From logits to answers: the best spans of each window, merged to one answer a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError
from offramp.tasks.squad.questions import Questions
from offramp.tasks.squad.windows import Window

Array = npt.NDArray[Any]
N_BEST, ANSWER_TOKENS = 20, 30


@dataclass(frozen=True)
class Candidate:
    """A span that may be the answer, or the empty text for none."""

    text: str
    probability: float
    """Among the candidates of its question: a softmax over start_logit + end_logit."""
    start_logit: float
    end_logit: float


@dataclass(frozen=True)
class Answer:
    """What a model answers to a question."""

    id: str
    text: str
    """Empty for "there is no answer"."""
    nbest: list[Candidate]
    """The best spans, best first; in SQuAD 2.0 the empty text comes after them."""
    null_odds: float = 0.0
    """In SQuAD 2.0: score of no answer − score of the best span. 0 in 1.1."""

    @property
    def best(self) -> str:
        """The best span's text, whatever the odds; empty only where the context has no words."""
        return next((candidate.text for candidate in self.nbest if candidate.text), "")


@dataclass(frozen=True)
class _Span:
    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


def find_answers(
    questions: Questions,
    windows: Sequence[Window],
    logits: Sequence[Array],
    *,
    n_best: int = N_BEST,
    max_answer_tokens: int = ANSWER_TOKENS,
    null_threshold: float = 0.0,
) -> list[Answer]:
    """The answer to each question, in their order, from each window's logits (T, 2) of starts and ends.

    A span's score is its start's logit + its end's. It has 1 to `max_answer_tokens` tokens, lies in the context, and
    starts where its window has the token's best context. The best of all windows is the answer; of equals, the first
    window's, then the first to start, then the shortest. Each window brings its `n_best` best spans; those are all
    looked at, while the original programs combine the best 20 starts with the best 20 ends, of which none may fit.
    Spans of one text count once.

    In SQuAD 2.0 no answer scores start + end of `[CLS]`, the lowest of all windows, and the answer is empty if that is
    more than `null_threshold` over the best span. Every question gets an answer: one whose context has no words, the
    empty text.
    """
    check_logits(windows, logits)
    if n_best < 1 or max_answer_tokens < 1:
        raise OfframpError(f"n_best {n_best}, max_answer_tokens {max_answer_tokens}: expected 1 or more")
    spans: list[list[_Span]] = [[] for _ in questions.questions]
    nulls: list[list[tuple[float, float]]] = [[] for _ in questions.questions]
    for number, (window, scores) in enumerate(zip(windows, logits, strict=True)):
        scores = np.asarray(scores, dtype=np.float64)
        spans[window.question] += _best_spans(number, window, scores, n_best, max_answer_tokens)
        nulls[window.question].append((float(scores[0, 0]), float(scores[0, 1])))
    answers = []
    for question, found, null in zip(questions.questions, spans, nulls, strict=True):
        found.sort(key=lambda span: -span.score)
        texts = _by_text(question.context, found, windows, n_best)
        lowest = min(null, key=sum, default=(0.0, 0.0)) if questions.version2 else None
        best = sum(next(iter(texts.values()), (0.0, 0.0)))
        odds = sum(lowest) - best if lowest else 0.0
        nbest = _candidates(texts, lowest)
        empty = not texts or (lowest is not None and odds > null_threshold)
        answers.append(Answer(question.id, "" if empty else nbest[0].text, nbest, odds))
    return answers


def check_logits(windows: Sequence[Window], logits: Sequence[Array], exits: int | None = None) -> None:
    """There must be one array a window, (T, 2), or (E, T, 2) for so many exits, without padding."""
    if len(windows) != len(logits):
        raise OfframpError(f"{len(logits)} arrays of logits for {len(windows)} windows: expected one for each")
    for number, (window, scores) in enumerate(zip(windows, logits, strict=True)):
        shape = (len(window.row), 2) if exits is None else (exits, len(window.row), 2)
        if np.shape(scores) != shape:
            raise OfframpError(f"logits of window {number} are {np.shape(scores)}: expected {shape}")
        if not np.isfinite(scores).all():
            raise OfframpError(f"logits of window {number} are not all numbers: is the model's training gone astray?")


def span_places(window: Window) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For each token, whether an answer may start, and whether one may end there: not where it is white space alone."""
    ends = np.array([place is not None and place[0] < place[1] for place in window.characters], dtype=bool)
    return ends & np.array(window.best_context, dtype=bool), ends


def span_text(context: str, window: Window, start: int, end: int) -> str:
    first, last = window.characters[start], window.characters[end]
    return context[first[0] : last[1]] if first and last else ""


def _best_spans(number: int, window: Window, logits: Array, n_best: int, max_tokens: int) -> Iterator[_Span]:
    may_start, may_end = span_places(window)
    places = np.flatnonzero(may_end)
    if not len(places):
        return
    first, end = int(places[0]), int(places[-1]) + 1
    starts = np.where(may_start, logits[:, 0], -np.inf)[first:end]
    ends = np.full(end - first + max_tokens - 1, -np.inf)
    ends[: end - first] = np.where(may_end, logits[:, 1], -np.inf)[first:end]
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, max_tokens)  # (T, max_tokens)
    flat = scores.ravel()
    lowest = np.partition(flat, -n_best)[-n_best] if len(flat) > n_best else -np.inf
    chosen = np.flatnonzero((flat >= lowest) & (flat > -np.inf))
    for place in chosen[np.argsort(-flat[chosen], kind="stable")][:n_best]:
        start, length = divmod(int(place), max_tokens)
        start += first
        yield _Span(number, start, start + length, float(logits[start, 0]), float(logits[start + length, 1]))


def _by_text(
    context: str, spans: list[_Span], windows: Sequence[Window], n_best: int
) -> dict[str, tuple[float, float]]:
    """The first `n_best` texts and their logits."""
    found: dict[str, tuple[float, float]] = {}
    for span in spans:
        if len(found) == n_best:
            break
        text = span_text(context, windows[span.window], span.start, span.end)
        found.setdefault(text, (span.start_logit, span.end_logit))
    return found


def _candidates(texts: dict[str, tuple[float, float]], null: tuple[float, float] | None) -> list[Candidate]:
    """With their probabilities. There is always one: without any span, the empty text."""
    found = list(texts.items())
    if null is not None or not found:
        found.append(("", null or (0.0, 0.0)))
    scores = np.array([sum(logits) for _, logits in found])
    powers = np.exp(scores - scores.max())
    shares = (powers / powers.sum()).tolist()
    return [Candidate(text, share, *logits) for (text, logits), share in zip(found, shares, strict=True)]
