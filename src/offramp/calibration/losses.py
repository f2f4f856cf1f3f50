"""What may be lost by leaving early: how it is observed of each answer, and how a limit to it is tested."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from offramp.calibration import pvalues
from offramp.errors import OfframpError
from offramp.evaluation.trace import Trace
from offramp.evaluation.trace_base import TraceBase

Exits = NDArray[np.int64]
Observed = NDArray[np.float64]

BOUNDS = ("exact", "betting", "hoeffding_bentkus", "hoeffding")
"""Tests, the tightest first; `exact` is betting where a loss can have many values."""
SCORES_OF_FULL_DEPTH = 41
"""Places at which the gap of F1 is tested, over where full depth's F1 may lie."""
IMPLAUSIBLE = 1e-5
"""How improbable an F1 of full depth is at which the gap is not tested."""


@dataclass(frozen=True)
class Loss(ABC):
    """A number for each answer, of which the mean is to stay below a limit."""

    bound: str = "exact"

    name: ClassVar[str]
    title: ClassVar[str]
    """After "at most 1 % …"."""
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    needs_labels: ClassVar[bool] = True

    @property
    def said(self) -> str:
        """The title, with what else has to be known."""
        return self.title

    @property
    def is_mean(self) -> bool:
        """Whether what is limited is a mean over answers."""
        return True

    def __post_init__(self) -> None:
        if self.bound not in BOUNDS:
            raise OfframpError(f"bound {self.bound!r}: use one of {', '.join(BOUNDS)}")

    @abstractmethod
    def observe(self, trace: TraceBase, exits: Exits) -> Observed:
        """What each answer says of the loss, first dimension the answers."""

    def risk(self, observed: Observed) -> float:
        """The loss that is observed."""
        return float(observed.mean())

    def pvalue(self, observed: Observed, limit: float) -> float:
        """Of "the loss is over the limit"."""
        return self._tested(observed, limit, self.low, self.high)

    def pvalue_within(self, observed: Observed, limit: float) -> float:
        """Of "the loss is within the limit": that its negative is over the negative one."""
        return self._tested(-observed, -limit, -self.high, -self.low)

    def _tested(self, observed: Observed, limit: float, low: float, high: float) -> float:
        """Of "the mean of numbers between low and high is over the limit"."""
        n = len(observed)
        mean, at = ((x - low) / (high - low) for x in (float(observed.mean()), limit))
        if self.bound == "hoeffding":
            return pvalues.hoeffding(mean, n, at)
        if self.bound == "hoeffding_bentkus":
            return pvalues.hoeffding_bentkus(mean, n, at)
        if self.bound == "exact" and (exact := self.exact(observed, limit, low)) is not None:
            return exact
        values, counts = np.unique(observed, return_counts=True)
        # The largest loss there is, seen or not, limits what may be bet.
        return pvalues.betting([*values, high], np.append(counts, 0), limit)

    def exact(self, observed: Observed, limit: float, low: float) -> float | None:
        """The exact test, where there is one."""
        return None

    def upper_bound(self, observed: Observed, confidence: float, high: float | None = None) -> float:
        """What the loss is at most, with that confidence, if it is known to be at most `high`."""
        high = self.high if high is None else high
        return pvalues.upper_bound(lambda limit: self.pvalue(observed, limit), confidence, self.risk(observed), high)


@dataclass(frozen=True)
class Inconsistency(Loss):
    """1 where the answer is not full depth's; of numbers, where it is further from it than the tolerance."""

    tolerance: float = 0.0

    name = "inconsistency"
    title = "of the answers differ from full depth's"
    needs_labels = False

    def observe(self, trace: TraceBase, exits: Exits) -> Observed:
        return (~trace.same_at(exits, self.tolerance)).astype(np.float64)

    def exact(self, observed: Observed, limit: float, low: float) -> float | None:
        return pvalues.binomial(float(observed.mean()) - low, len(observed), limit - low)


@dataclass(frozen=True)
class AccuracyGap(Loss):
    """1 where full depth is right and the answer is not, −1 where it is the reverse: the mean is the accuracy lost."""

    name = "accuracy"
    title = "of accuracy is lost"
    low = -1.0

    def observe(self, trace: TraceBase, exits: Exits) -> Observed:
        return trace.right_at(None).astype(np.float64) - trace.right_at(exits)

    def exact(self, observed: Observed, limit: float, low: float) -> float | None:
        return pvalues.paired(int((observed > 0).sum()), int((observed < 0).sum()), len(observed), limit)


@dataclass(frozen=True)
class F1Gap(Loss):
    """F1 of label 1, lost. F1 is no mean over answers, but whether it is over a number φ is one:

        F1 = 2 P(y ∧ a) / (P(y) + P(a)) ≥ φ    ⟺    E[ 2·y·a − φ·(y + a) ] ≥ 0

    with y the true label and a the answer, each 0 or 1. If full depth, with answers f, has F1 = φ, then a loses more
    than the limit only if

        E[ 2·y·a − (φ − limit)·(y + a)  −  2·y·f + φ·(y + f) ] ≤ 0

    which betting tests, at every φ that full depth may have but for an improbable rest, whose probability is added.
    Where a and f are the same the number is limit · (y + a), so it hardly varies, and little is lost by the detour.
    """

    name = "f1"
    title = "of F1 is lost"
    low = -1.0

    @property
    def is_mean(self) -> bool:
        return False

    def observe(self, trace: TraceBase, exits: Exits) -> Observed:
        """4·y + 2·f + a."""
        if not isinstance(trace, Trace) or trace.labels is None or len(trace.label_names) != 2:
            raise OfframpError("the loss of F1 can be limited for two labels whose true values are known")
        numbers = np.asarray(trace.task_numbers or (0, 1))
        full, answers = numbers[trace.full_depth], numbers[trace.predictions(exits)]
        observed: Observed = (4 * numbers[trace.labels] + 2 * full + answers).astype(np.float64)
        return observed

    def risk(self, observed: Observed) -> float:
        y, full, answer, counts = _cells(observed)
        return _f1(y, full, counts) - _f1(y, answer, counts)

    def pvalue(self, observed: Observed, limit: float) -> float:
        return self._over_scores(observed, limit, 1)

    def pvalue_within(self, observed: Observed, limit: float) -> float:
        return self._over_scores(observed, limit, -1)

    def _over_scores(self, observed: Observed, limit: float, side: int) -> float:
        """The worst p-value over what full depth's F1 may be, of a loss over the limit (side 1) or within it (−1)."""
        if self.bound not in ("exact", "betting"):
            raise OfframpError(f"the loss of F1 is tested by betting, not by {self.bound}")
        y, full, answer, counts = _cells(observed)
        low, high = _plausible(tuple(np.bincount(2 * y + full, counts, 4).astype(int).tolist()))
        scores = np.linspace(low, high, SCORES_OF_FULL_DEPTH)[:, None]
        lost = _excess(y, full, scores) - _excess(y, answer, scores - limit)
        return float(min(1.0, IMPLAUSIBLE + np.exp(-pvalues.money(-side * lost, counts).min())))


@lru_cache(2)  # the same for every policy on the same rows
def _plausible(counts: tuple[int, ...]) -> tuple[float, float]:
    """Between which numbers full depth's F1 lies, but for an improbable rest, from how often 2·y + f is 0 … 3."""
    y, full = np.arange(4) >> 1, np.arange(4) & 1
    often = np.array(counts)

    def is_plausible(score: float) -> bool:
        gains = _excess(y, full, np.array(score))
        return bool(pvalues.money(np.stack([gains, -gains]), often).max() < np.log(2 / IMPLAUSIBLE))

    middle = _f1(y, full, often)
    return _edge(is_plausible, middle, 0.0), _edge(is_plausible, middle, 1.0)


def _excess(y: NDArray[np.int64], answers: NDArray[np.int64], score: NDArray[np.float64]) -> NDArray[np.float64]:
    """2·y·a − φ·(y + a): above 0 on average where F1 is above φ."""
    return np.asarray(2 * y * answers - score * (y + answers), dtype=np.float64)


def _cells(observed: Observed) -> tuple[NDArray[np.int64], ...]:
    """y, f and a of each of the eight cells, and how many answers are in it."""
    cell = np.arange(8)
    return cell >> 2, (cell >> 1) & 1, cell & 1, np.bincount(observed.astype(np.int64), minlength=8)


def _f1(y: NDArray[np.int64], answers: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
    return 2 * float((y * answers) @ counts) / max(float((y + answers) @ counts), 1.0)


def _edge(holds: Callable[[float], bool], inside: float, end: float) -> float:
    """How far from `inside` towards `end` something holds: a little beyond, by bisection."""
    for _ in range(20):
        middle = (inside + end) / 2
        inside, end = (middle, end) if holds(middle) else (inside, middle)
    return end


@dataclass(frozen=True)
class Cost(Loss):
    """The share of the layers that are run, or of the operations (`flops`).

    Texts of all lengths have the same layers, but not the same operations, and long ones may leave late: the mean of
    each text's share says nothing of what is computed in all. That is Σ operations / Σ those of full depth, which is no
    mean over texts; but whether it is within a limit is one:

        E[o] / E[f] ≤ limit    ⟺    E[ o − limit · f ] ≤ 0

    with o the operations of a text and f those of full depth, each as a share of what the longest text that is not cut
    takes with every head and neuron: so it is known how large they can be, seen or not.

    Of questions, each with windows of its own, nobody knows how many they can be. There the share is each question's,
    and the mean is over questions (`by_question`).
    """

    flops: bool = False
    by_question: bool = False

    name = "cost"
    title = "of full depth is computed"
    needs_labels = False

    @property
    def said(self) -> str:
        return f"{self.title}{' for a question, on the mean over questions' if self.by_question else ''}"

    @property
    def is_mean(self) -> bool:
        return not self.flops

    def observe(self, trace: TraceBase, exits: Exits) -> Observed:
        """Shares (answers,) or, of texts' operations, o, f and whether other gates may make o larger (answers, 3)."""
        if not self.flops:
            return trace.per_answer(np.asarray(trace.exit_layers)[exits] / trace.depth)
        used, full = trace.ebert_mflops[exits, np.arange(len(trace))], trace.full_depth_mflops
        if trace.kind == "span":
            return trace.per_answer(used) / trace.per_answer(full)
        other_gates = isinstance(trace, Trace) and trace.reference_mflops is not None
        return np.stack([used, full, np.full(len(trace), trace.most_mflops * other_gates)], axis=1) / trace.most_mflops

    def risk(self, observed: Observed) -> float:
        if observed.ndim == 1:
            return float(observed.mean())
        return float(observed[:, 0].sum() / observed[:, 1].sum())

    def pvalue(self, observed: Observed, limit: float) -> float:
        if observed.ndim == 1:
            return super().pvalue(observed, limit)
        return self._tested(*self._excess(observed, limit))

    def pvalue_within(self, observed: Observed, limit: float) -> float:
        if observed.ndim == 1:
            return super().pvalue_within(observed, limit)
        excess, at, low, high = self._excess(observed, limit)
        return self._tested(-excess, -at, -high, -low)

    @staticmethod
    def _excess(observed: Observed, limit: float) -> tuple[Observed, float, float, float]:
        """o − limit · f of each text, what it must be on average, and between which numbers it lies."""
        used, full, over = observed.T
        return used - limit * full, 0.0, -limit, 1 - limit * (1 - float(over.max(initial=0.0)))


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Inconsistency, AccuracyGap, F1Gap, Cost)}
BY_METRIC: dict[str, type[Loss]] = {"accuracy": AccuracyGap, "exact": AccuracyGap, "f1": F1Gap}
REFUSED = {
    "matthews": "Matthews' correlation is no mean over answers, and no test of its loss holds for every distribution",
    "macro_f1": "macro F1 is a mean of ratios, and no test of its loss holds for every distribution",
    "accuracy_f1": "the mean of accuracy and F1 has no test of its own: limit one of them",
    "pearson": "a correlation is no mean over answers, and no test of its loss holds for every distribution",
}
INSTEAD = {
    "classification": "--metric accuracy, or --consistency",
    "span": "--metric exact, or --consistency",
    "regression": "--consistency --tolerance NUMBER",
}
REFUSED |= dict.fromkeys(("spearman", "pearson_spearman"), REFUSED["pearson"])


class Rows(Protocol):
    """What has to be known of rows to say what can be promised of them: a trace knows it."""

    @property
    def kind(self) -> str: ...
    @property
    def labelled(self) -> bool: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...


def loss_of(rows: Rows, metric: str | None, consistency: bool, tolerance: float | None, bound: str) -> Loss:
    """The loss to limit: of a metric (default: the task's own, where it can be tested), or of consistency."""
    if consistency:
        if rows.kind == "regression" and tolerance is None:
            raise OfframpError(
                "numbers are never quite the same: say with --tolerance how far they may be from full depth's"
            )
        return Inconsistency(bound, tolerance or 0.0)
    if not rows.labelled:
        raise OfframpError("the data has no labels: what is lost cannot be seen; use --consistency, which needs none")
    name = metric or (rows.metrics[0] if rows.kind != "span" else "exact")
    if name in BY_METRIC and (rows.kind == "classification" or (rows.kind == "span" and name != "f1")):
        return BY_METRIC[name](bound)
    reason = REFUSED.get(name, f"there is no test of the loss of {name}")
    raise OfframpError(f"{name} cannot be promised: {reason}; use {INSTEAD[rows.kind]}")
