"""Whether new rows are like those a policy was calibrated on, as the model sees them: no labels are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from offramp.calibration.certificate import QUANTILES, Certificate, confidences
from offramp.errors import OfframpError
from offramp.evaluation.trace_base import TraceBase

NONE, SLIGHT, MARKED = SIZES = ("none", "slight", "marked")
ERROR = 0.01
"""How often rows that are alike may be called shifted, all tests together."""
MARKED_FROM = 0.1
"""A tenth of the rows is elsewhere than it was: with many rows, less is found to be no accident and yet is of no
matter."""
FEW = 5
"""Exits at which fewer rows are expected are tested together with the next."""
DIGITS = 5
"""To which the quantiles of a certificate are rounded."""


@dataclass(frozen=True)
class Shift:
    """How far something has moved."""

    name: str
    """exits, confidence (of the exit that answered) or full_confidence."""
    distance: float
    """Share of the rows that would have to move back: total variation of exits, largest gap of two distributions."""
    pvalue: float
    size: str
    """none, slight or marked: how far, if it is no accident."""


def shifts(trace: TraceBase, certificate: Certificate) -> tuple[Shift, ...]:
    """Where rows leave and how sure the model is of them, against the rows of the certificate.

    The error is shared: each of the tests has its part (Bonferroni).
    """
    before, rows = certificate.reference, certificate.data["rows"]
    found = {"exits": _exits_moved(trace, certificate)}
    if trace.kind == "classification":
        for name, sure in confidences(trace, certificate.policy).items():
            if name in before:
                found[name] = quantiles_moved(before[name], rows, sure)
    return tuple(
        Shift(name, distance, pvalue, _size(distance, pvalue, ERROR / len(found)))
        for name, (distance, pvalue) in found.items()
    )


def largest(found: Sequence[Shift]) -> str:
    return max((one.size for one in found), key=SIZES.index)


def _size(distance: float, pvalue: float, error: float) -> str:
    if pvalue > error:
        return NONE
    return MARKED if distance >= MARKED_FROM else SLIGHT


def _exits_moved(trace: TraceBase, certificate: Certificate) -> tuple[float, float]:
    before = {int(layer): count for layer, count in certificate.reference["exits"].items()}
    if tuple(before) != tuple(dict.fromkeys(trace.exit_layers)):
        raise OfframpError("the certificate is of a model with other exits: calibrate again")
    # By layer: two exits may sit after the same one.
    layers = np.asarray(trace.exit_layers)[trace.exits(certificate.policy)]
    now = np.bincount(np.searchsorted([*before], layers), minlength=len(before))
    then = np.array([*before.values()])
    # Windows on one text leave alike: all of them together say as much as one.
    answers = np.array([[certificate.data["rows"]], [trace.answers]])
    return counts_moved(np.stack([then, now]), answers)


def counts_moved(counts: NDArray[np.int64], answers: NDArray[np.int64]) -> tuple[float, float]:
    """Of two rows of counts: the total variation, and the p-value of "they are alike" by Pearson's χ² test.

    `answers` (2, 1): how many of what was counted are independent.
    """
    totals = counts.sum(1, keepdims=True)
    shares = counts / totals
    distance = float(np.abs(shares[0] - shares[1]).sum() / 2)
    table = merged(shares * np.minimum(answers, totals))
    if table.shape[1] < 2:
        return distance, 1.0
    return distance, float(stats.chi2_contingency(table, correction=False).pvalue)


def merged(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns next to each other put together until enough is expected in every cell."""
    share = table.sum(1).min() / table.sum()  # of the smaller row
    columns: list[NDArray[np.float64]] = []
    waiting = np.zeros(2)
    for column in table.T:
        waiting = waiting + column
        if waiting.sum() * share >= FEW:
            columns.append(waiting)
            waiting = np.zeros(2)
    if columns:
        columns[-1] = columns[-1] + waiting
    return np.stack(columns or [waiting], axis=1)


def quantiles_moved(quantiles: Sequence[float], rows: int, sure: NDArray[np.float64]) -> tuple[float, float]:
    """The largest gap between the distribution of old rows, of which quantiles are known, and that of new ones.

    The gap is looked at where the old distribution is known: at its quantiles, from both sides, since many rows may
    lie on one. There the j-th of them says that at most j/20 of the old rows lie below it and at least j/20 not above,
    but for one row. So the gap is at most that of Kolmogorov and Smirnov's test of two samples, whose p-value, with
    the numbers of old and new rows in it, errs on the safe side.
    """
    knots = np.asarray(quantiles)
    new = np.sort(np.round(sure, DIGITS))
    below, upto = (np.searchsorted(new, knots, side) / len(new) for side in ("left", "right"))
    gap = float(max((below - QUANTILES).max(), (QUANTILES - upto).max())) - 1 / rows
    distance = min(max(gap, 0.0), 1.0)
    effective = max(1, round(rows * len(new) / (rows + len(new))))
    return distance, float(stats.kstwo.sf(distance, effective))
