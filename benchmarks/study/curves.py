"""Score against cost: what a budget buys, and one number for a whole curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from benchmarks.study.crossfit import CrossFitted, Point

COSTS = ("layers", "flops")


@dataclass(frozen=True)
class Curve:
    """Operating points, joined by mixing: sending each row to one of two neighbours at random costs, and for a share of
    right answers scores, what lies between them on a straight line. (For F1 and correlations that is nearly so.)

    At no cost every row gets the most frequent training label; points that did not beat it where they were chosen are
    left out. Beyond its dearest point a curve goes on level.
    """

    costs: tuple[float, ...]
    """Ascending, the first 0."""
    scores: tuple[float, ...]

    def at(self, budget: float) -> float:
        return float(np.interp(budget, self.costs, self.scores))

    def area(self, first: float) -> float:
        """1 / (1 − first) · ∫ from `first` to 1 of at(c) dc: the mean score over budgets from one layer to all."""
        inner = [cost for cost in self.costs if first < cost < 1]
        stops = [first, *inner, 1.0]
        values = [self.at(stop) for stop in stops]
        pieces = zip(stops, stops[1:], values, values[1:], strict=False)
        return sum((right - left) * (low + high) / 2 for left, right, low, high in pieces) / (1 - first)


def curve_of(points: Iterable[tuple[float, float]], free_score: float) -> Curve:
    """A curve through (cost, score) in any order; of points that cost the same, the mean."""
    by_cost: dict[float, list[float]] = {0.0: [free_score]}
    for cost, score in points:
        by_cost.setdefault(cost, []).append(score)
    costs = sorted(by_cost)
    return Curve(tuple(costs), tuple(fmean(by_cost[cost]) for cost in costs))


@dataclass(frozen=True)
class MeanCurve:
    """The mean of the curves of both halves, budget by budget."""

    halves: tuple[Curve, Curve]

    def at(self, budget: float) -> float:
        return fmean(half.at(budget) for half in self.halves)

    def area(self, first: float) -> float:
        return fmean(half.area(first) for half in self.halves)


def mean_curve(points: CrossFitted, free: Sequence[float], cost: str) -> MeanCurve:
    """What was cross-fitted, as a curve in layers or in FLOPs; `free`: the score at no cost on each half."""

    def half(of_half: Sequence[Point], score: float) -> Curve:
        return curve_of(((getattr(point, cost), point.score) for point in of_half), score)

    return MeanCurve((half(points.on_a, free[0]), half(points.on_b, free[1])))


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and how far it may be off."""

    mean: float
    half_width: float | None
    """Of the 95 % interval by Student's t; None for one seed."""
    runs: int


T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t by degrees of freedom."""


def estimate(values: Sequence[float]) -> Estimate | None:
    """Of no runs there is none."""
    if not values:
        return None
    if len(values) == 1:
        return Estimate(values[0], None, 1)
    width = T_975.get(len(values) - 1, 1.96) * stdev(values) / math.sqrt(len(values))
    return Estimate(fmean(values), width, len(values))
