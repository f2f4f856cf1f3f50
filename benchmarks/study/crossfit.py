"""Operating points that are chosen on one half of dev and scored on the other, both ways round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.study.halves import Rows, dev_halves
from offramp.evaluation.flops import elue_mflops
from offramp.evaluation.sweep import pareto
from offramp.evaluation.trace import Trace
from offramp.policies import REGISTRY

COMMON_RULES = {"classification": ("entropy", "fixed"), "regression": ("patience", "fixed")}
"""By which all methods are compared. A model with exits can always be left after one and the same layer."""
DIGITS = 5


class Point(NamedTuple):
    """An operating point as one half of dev has it."""

    policy: str
    layers: float
    """Mean over the rows, as a share of the backbone's."""
    flops: float
    """ELUE's count with visited exits, as a share of the plain model's at full depth on the same rows."""
    score: float


class CrossFitted(NamedTuple):
    """One list of points for each half that they are scored on; what chose them is the other half."""

    on_a: list[Point]
    on_b: list[Point]


def cross_fit(trace: Trace, rules: Sequence[str], free: Sequence[float]) -> CrossFitted:
    """The Pareto front of some rules on one half, scored on the other half.

    `free` is what answering without a model scores on each half: what does not beat it is not chosen.
    """
    a, b = dev_halves(len(trace))
    return CrossFitted(
        on_a=chosen_elsewhere(trace, rules, b, a, free[1]), on_b=chosen_elsewhere(trace, rules, a, b, free[0])
    )


def chosen_elsewhere(trace: Trace, rules: Sequence[str], choose_on: Rows, score_on: Rows, free: float) -> list[Point]:
    """What was chosen on some rows, as other rows have it."""
    reported = trace.take(score_on)
    return [point_of(reported, policy) for policy in chosen_policies(trace.take(choose_on), rules, free)]


def chosen_policies(trace: Trace, rules: Sequence[str], free: float) -> list[str]:
    """The settings of these rules that are best at some cost, cheapest first."""
    points = [point for rule in rules for point in trace.sweep(REGISTRY[rule]).points]
    return [point.policy for point in pareto(points) if (point.score or 0.0) > free]


def rules_for(trace: Trace, wanted: Sequence[str]) -> list[str]:
    """Those that make sense for the task, each once."""
    return [rule for rule in dict.fromkeys(wanted) if trace.kind in REGISTRY[rule].tasks]


def point_of(trace: Trace, policy: str) -> Point:
    """What a policy gives on the rows of a trace."""
    point = trace.point(policy)
    return rounded(Point(policy, point.cost, point.mflops / full_mflops(trace), point.score or 0.0))


def rounded(point: Point) -> Point:
    return Point(point.policy, *(round(float(number), DIGITS) for number in point[1:]))


def full_mflops(trace: Trace) -> float:
    """Of the same model at full depth with one exit and without gates, each row at its own length."""
    return float(np.mean(elue_mflops(trace.shape.elue_macs(trace.lengths))))
