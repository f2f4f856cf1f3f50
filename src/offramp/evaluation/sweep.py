"""Curves of operating points: the Pareto front, and one number for a whole curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from offramp.evaluation.results import ExitScore, OperatingPoint

NEARLY = 1e-9
"""Room for rounding where a point lies just at a limit."""


def quality(point: OperatingPoint | ExitScore) -> float:
    """What a point is judged by: its score or, where there are no labels, its agreement with full depth."""
    return next(iter(point.scores.values()), point.agreement)


def pareto(points: Iterable[OperatingPoint], by: Callable[[OperatingPoint], float] = quality) -> list[OperatingPoint]:
    """The points that no other beats in both score and cost, cheapest first; of equal points the first one."""
    front: list[OperatingPoint] = []
    for point in sorted(points, key=lambda point: (point.cost, -by(point))):
        if not front or by(point) > by(front[-1]):
            front.append(point)
    return front


def cheapest(
    points: Iterable[OperatingPoint], least: float, by: Callable[[OperatingPoint], float] = quality
) -> OperatingPoint | None:
    """The cheapest point that scores at least so much; of equal cost, the best."""
    good = [point for point in points if by(point) >= least - NEARLY]
    return min(good, key=lambda point: (point.cost, -by(point)), default=None)


def best_within(
    points: Iterable[OperatingPoint], budget: float, by: Callable[[OperatingPoint], float] = quality
) -> OperatingPoint | None:
    """The best point that costs at most so much; of equal score, the cheapest."""
    affordable = [point for point in points if point.cost <= budget + NEARLY and not math.isnan(by(point))]
    return max(affordable, key=lambda point: (by(point), -point.cost), default=None)


def area(points: Iterable[OperatingPoint], first_cost: float, first_score: float) -> float:
    """What the curve gives, on average, to somebody with a budget: one number for curves of different ranges.

        1 / (1 − c₁) · ∫ from c₁ to 1 of best(c) dc,    best(c) = max score of the points whose cost is at most c

    with c₁ the cost of the model's first exit, which can always answer alone: it is part of every curve. A point more
    never makes it smaller. Points are not joined by lines: between two thresholds there need not be another.
    """
    reached = [(max(point.cost, first_cost), quality(point)) for point in points if point.cost <= 1]
    steps = sorted([(first_cost, first_score), *reached])
    if first_cost >= 1:
        return max(score for _, score in steps)
    best, total = steps[0][1], 0.0
    for (cost, score), (following, _) in zip(steps, [*steps[1:], (1.0, 0.0)], strict=True):
        best = max(best, score)
        total += best * (following - cost)
    return total / (1 - first_cost)
