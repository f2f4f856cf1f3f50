"""The trace of a model that answers questions with spans: every exit's logits for every token of every window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError
from offramp.evaluation.trace import one_pass
from offramp.evaluation.trace_base import TraceBase
from offramp.models import MultiExitModel
from offramp.policies import Policy, first_exit, policy_from_text
from offramp.tasks.squad import Question, Questions, SpanTable, Window, WindowEncoder, best_spans, find_answers
from offramp.tasks.squad.metric import GoldAnswers
from offramp.tasks.task import Task

TOGETHER = 256
"""Windows of like length that a policy looks at together."""

Answers = tuple[tuple[str, ...], ...]
"""For each question the texts that are right; none where no answer is."""


@dataclass(frozen=True, kw_only=True)
class SpanTrace(TraceBase):
    """What a model said at every exit to each of W windows, and which answers that makes to Q questions.

    Each window leaves by an exit of its own; a question's answer is the best span of its windows, each as its exit has
    it. Costs are means over windows, scores means over questions. `logits` are (E, sum of `lengths`, 2), window after
    window, without padding.
    """

    kinds = frozenset({"span"})

    questions: NDArray[np.int64]
    """(W,) the number of each window's question, ascending."""
    span_scores: NDArray[np.float64]
    """(E, W) of each window's best span."""
    null_scores: NDArray[np.float64]
    """(E, W) of no answer."""
    exact: NDArray[np.float64] | None
    """(E, W) exact match of the best span; None where the true answers are not known, and so `f1`."""
    f1: NDArray[np.float64] | None
    same: NDArray[np.float64]
    """(E, W) whether the best span is the answer of full depth to the window's question, as exact match tells."""
    version2: bool
    """Whether a model may answer with nothing (SQuAD 2.0)."""
    labels: Answers | None
    """The true answers; None where they are not known."""
    full_depth: Answers
    """The answers of the last exit."""

    def __post_init__(self) -> None:
        exits, windows = len(self.exit_layers), len(self.lengths)
        if self.logits.shape != (exits, self.lengths.sum(), 2) or self.span_scores.shape != (exits, windows):
            raise OfframpError(
                f"a trace of {exits} exits and {windows} windows of {self.lengths.sum()} tokens in all needs logits of "
                f"that shape, not {self.logits.shape}, and a score for each, not {self.span_scores.shape}"
            )
        if len(self.questions) != windows:
            raise OfframpError(f"{len(self.questions)} numbers of questions for {windows} windows")

    @property
    def kind(self) -> str:
        return "span"

    @property
    def labelled(self) -> bool:
        return self.labels is not None

    @property
    def answers(self) -> int:
        """Questions."""
        return len(self.full_depth)

    @property
    def tensor(self) -> Tensor:
        return self._padded(np.arange(len(self)))

    def _padded(self, windows: NDArray[np.int64]) -> Tensor:
        """Some windows as a policy sees a batch of them: (E, W, T, 2)."""
        lengths, ends = self.lengths[windows], self.lengths.cumsum()[windows]
        shape = (len(self.exit_layers), len(windows), int(lengths.max(initial=0)), 2)
        padded = np.full(shape, np.finfo(np.float32).min, dtype=np.float32)
        for place, (length, end) in enumerate(zip(lengths, ends, strict=True)):
            padded[:, place, :length] = self.logits[:, end - length : end]
        return torch.from_numpy(padded)

    @cached_property
    def _batches(self) -> list[tuple[NDArray[np.int64], Tensor]]:
        """All windows, those of like length together: little padding."""
        by_length = np.argsort(self.lengths, kind="stable")
        parts = [by_length[first : first + TOGETHER] for first in range(0, len(self), TOGETHER)]
        return [(part, self._padded(part)) for part in parts]

    def exits(self, policy: Policy | str) -> NDArray[np.int64]:
        """Which exit (0-based) each window leaves by: (W,)."""
        policy = policy_from_text(policy) if isinstance(policy, str) else policy
        chosen = np.empty(len(self), dtype=np.int64)
        for windows, logits in self._batches:
            chosen[windows] = first_exit(policy, logits, self.exit_layers, self.kind, torch.from_numpy(windows)).numpy()
        return chosen

    def scores_at(self, exits: NDArray[np.int64]) -> dict[str, float]:
        if self._scores is None:
            return {}
        found = self._scores.scores(exits)
        return {metric: found[metric] for metric in self.metrics}

    def same_at(self, exits: NDArray[np.int64], tolerance: float = 0.0) -> NDArray[np.bool_]:
        return self._agreement.exact_at(exits) > 0

    def right_at(self, exits: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        if self._scores is None:
            raise OfframpError(f"{self.source}: there are no true answers to say what is right")
        return self._scores.exact_at(self.all_at(len(self.exit_layers) - 1) if exits is None else exits) > 0

    def take(self, answers: NDArray[np.int64]) -> SpanTrace:
        new_number = np.full(self.answers, -1)
        new_number[answers] = np.arange(len(answers))
        windows = np.flatnonzero(new_number[self.questions] >= 0)
        windows = windows[np.argsort(new_number[self.questions[windows]], kind="stable")]
        ends = self.lengths.cumsum()
        tokens = [np.arange(ends[window] - self.lengths[window], ends[window]) for window in windows]
        tables = ("span_scores", "null_scores", "exact", "f1", "same")
        by_window: dict[str, Any] = {name: getattr(self, name) for name in tables}
        some: dict[str, Any] = {n: None if table is None else table[:, windows] for n, table in by_window.items()}
        return replace(
            self,
            logits=self.logits[:, np.concatenate([*tokens, np.empty(0, np.int64)])],
            questions=new_number[self.questions[windows]],
            labels=None if self.labels is None else tuple(self.labels[answer] for answer in answers),
            full_depth=tuple(self.full_depth[answer] for answer in answers),
            **some,
            **self._taken(windows),
        )

    def per_answer(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        windows = np.bincount(self.questions, minlength=self.answers)
        means: NDArray[np.float64] = np.bincount(self.questions, numbers, self.answers) / windows
        return means

    def agreement_at(self, exits: NDArray[np.int64]) -> float:
        """Share of questions whose answer is full depth's, but for case, punctuation and articles."""
        return self._agreement.scores(exits)["exact"]

    @cached_property
    def _scores(self) -> SpanTable | None:
        if self.labels is None or self.exact is None or self.f1 is None:
            return None
        return self._table(self.exact, self.f1, self.labels)

    @cached_property
    def _agreement(self) -> SpanTable:
        return self._table(self.same, self.same, self.full_depth)

    def _table(self, exact: NDArray[np.float64], f1: NDArray[np.float64], right: Answers) -> SpanTable:
        gold = GoldAnswers(with_answers(right, self.version2, self.source))
        return SpanTable(self.span_scores, self.null_scores, exact, f1, self.questions, gold)

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"windows": len(self)}


def with_answers(answers: Answers, version2: bool, source: str) -> Questions:
    """Questions of which the answers alone are known."""
    return Questions([Question("", "", "", texts, (), not texts) for texts in answers], version2, source, labelled=True)


def collect_spans(
    model: MultiExitModel,
    task: Task,
    questions: Questions,
    windows: Sequence[Window],
    encoder: WindowEncoder,
    **settings: Any,
) -> SpanTrace:
    """Run a model over the windows of questions, and keep what every exit says; settings as `one_pass` has them."""
    fields = one_pass(model, task, questions, [window.row for window in windows], encoder, **settings)
    each = np.split(fields["logits"], fields["lengths"].cumsum()[:-1], axis=1)  # (E, T, 2) of each window
    answers = find_answers(questions, windows, [logits[-1] for logits in each], n_best=1)
    full_depth = tuple(() if questions.version2 and not answer.text else (answer.text,) for answer in answers)
    asked = [
        replace(question, answers=right, impossible=not right)
        for question, right in zip(questions.questions, full_depth, strict=True)
    ]
    agreement = best_spans(replace(questions, questions=asked, labelled=True), windows, each)
    scores = best_spans(questions, windows, each) if questions.labelled else None
    return SpanTrace(
        **fields,
        questions=agreement.questions,
        span_scores=agreement.span_scores,
        null_scores=agreement.null_scores,
        exact=scores.exact if scores else None,
        f1=scores.f1 if scores else None,
        same=agreement.exact,
        version2=questions.version2,
        labels=tuple(question.answers for question in questions.questions) if scores else None,
        full_depth=full_depth,
    )
