"""Every exit's best span in every window, computed once: what a choice of exits scores is then only looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError
from offramp.tasks.squad.answers import ANSWER_TOKENS, check_logits, span_places, span_text
from offramp.tasks.squad.metric import GoldAnswers, summary
from offramp.tasks.squad.questions import Questions
from offramp.tasks.squad.windows import Window

Array = npt.NDArray[Any]
AT_A_TIME = 64
"""Windows; more do not fit into a processor's cache."""


@dataclass(frozen=True)
class SpanTable:
    """For each exit and window (E, W): its best span, what that scores, and what no answer scores."""

    span_scores: Array
    """Start's + end's logit of the best span; −inf where a window has none."""
    null_scores: Array
    """Start's + end's logit of `[CLS]`."""
    exact: Array
    """Exact match of the best span."""
    f1: Array
    """F1 of the best span."""
    questions: Array
    """The number of each window's question (W,)."""
    gold: GoldAnswers = field(repr=False)

    def scores(self, exits: Array, null_threshold: float = 0.0) -> dict[str, float]:
        """What `squad_scores` says of the answers `find_answers` gives if window w leaves at exit `exits[w]`.

        The best threshold (2.0) is searched over the best spans, `Answer.best`.
        """
        exact, f1, answered, odds = self._chosen(exits)
        return summary(exact, f1, answered, self.gold, odds if self.gold.version2 else None, null_threshold)

    def exact_at(self, exits: Array, null_threshold: float = 0.0) -> Array:
        """Exact match of each question's answer (Q,)."""
        exact, _, _, odds = self._chosen(exits)
        return np.where(odds > null_threshold, ~self.gold.has_answer, exact) if self.gold.version2 else exact

    def _chosen(self, exits: Array) -> tuple[Array, Array, Array, Array]:
        """Of each question's best span (Q,): exact match, F1, whether there is one, and the odds of no answer."""
        exits = np.asarray(exits)
        if exits.shape != self.questions.shape:
            raise OfframpError(f"exits {exits.shape}: expected one for each of {len(self.questions)} windows")
        if not ((exits >= 0) & (exits < len(self.span_scores))).all():
            raise OfframpError(
                f"exits {exits.min()} to {exits.max()}: there are exits 0 to {len(self.span_scores) - 1}"
            )
        each = np.arange(len(exits))
        spans, nulls = self.span_scores[exits, each], self.null_scores[exits, each]
        firsts = np.flatnonzero(np.diff(self.questions, prepend=-1))  # the first window of each question
        best = np.maximum.reduceat(spans, firsts)  # (Q,)
        is_best = spans == best[self.questions]
        chosen = np.minimum.reduceat(np.where(is_best, each, len(each)), firsts)  # the first window of equals
        answered = best > -np.inf
        odds = np.minimum.reduceat(nulls, firsts) - np.where(answered, best, 0.0)
        exact, f1 = (table[exits[chosen], chosen] for table in (self.exact, self.f1))
        return exact, f1, answered, odds


def best_spans(
    questions: Questions,
    windows: Sequence[Window],
    logits: Sequence[Array],
    max_answer_tokens: int = ANSWER_TOKENS,
) -> SpanTable:
    """The table of each window's logits at all exits (E, T, 2), without padding.

    Spans are chosen as in `find_answers`. The windows must be those of all questions, in their order, as
    `WindowEncoder` makes them.
    """
    check_logits(windows, logits, exits=len(logits[0]) if len(logits) else 0)
    numbers = np.array([window.question for window in windows], dtype=np.int64)
    if not np.array_equal(np.unique(numbers), np.arange(len(questions))) or (np.diff(numbers) < 0).any():
        raise OfframpError(f"{len(windows)} windows are not those of {len(questions)} questions, in their order")
    gold = GoldAnswers(questions)
    tables = np.zeros((4, len(logits[0]), len(windows)))
    for first in range(0, len(windows), AT_A_TIME):
        part = slice(first, first + AT_A_TIME)
        best, starts, ends = _best_of(windows[part], logits[part], max_answer_tokens)
        tables[0, :, part] = best
        for number, window in enumerate(windows[part]):
            tables[1, :, first + number] = np.asarray(logits[first + number], dtype=np.float64)[:, 0].sum(-1)
            context = questions.questions[window.question].context
            for exit in range(len(best)):
                found = best[exit, number] > -np.inf
                text = span_text(context, window, starts[exit, number], ends[exit, number]) if found else ""
                tables[2:, exit, first + number] = gold.score(window.question, text)
    scores, nulls, exact, f1 = tables
    return SpanTable(scores, nulls, exact, f1, numbers, gold)


def _best_of(windows: Sequence[Window], logits: Sequence[Array], max_tokens: int) -> tuple[Array, Array, Array]:
    """Score, first and last token (E, W) of each window's best span, for all exits at once."""
    exits, longest = len(logits[0]), max(len(window.row) for window in windows)
    starts, ends = np.full((2, exits, len(windows), longest), -np.inf)
    for number, (window, scores) in enumerate(zip(windows, logits, strict=True)):
        may_start, may_end = span_places(window)
        tokens = len(window.row)
        starts[:, number, :tokens] = np.where(may_start, scores[..., 0], -np.inf)
        ends[:, number, :tokens] = np.where(may_end, scores[..., 1], -np.inf)
    best, lengths = starts + ends, np.zeros(starts.shape, dtype=np.int64)
    for more in range(1, min(max_tokens, longest)):  # tokens after the first
        longer = starts[..., :-more] + ends[..., more:]
        better = longer > best[..., :-more]
        np.copyto(best[..., :-more], longer, where=better)
        np.copyto(lengths[..., :-more], more, where=better)
    start = best.argmax(-1)
    score, length = (np.take_along_axis(table, start[..., None], -1)[..., 0] for table in (best, lengths))
    return score, start, start + length
