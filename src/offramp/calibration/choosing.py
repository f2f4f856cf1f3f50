"""Which path to test: the one that is expected to lead furthest on so many rows."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from offramp.calibration.losses import Loss
from offramp.calibration.paths import Path, paths
from offramp.evaluation.trace_base import TraceBase

FEWEST = 300
"""Answers to choose by; with fewer the plainest path is taken."""
BETTER = 0.02
"""Of full depth's cost: by so much a path must be better than the plainest to be taken instead."""
PLAIN = ("entropy", "patience")
"""What is taken where nothing speaks for another, whichever the task has."""


def choose_path(design: TraceBase, loss: Loss, limit: float, confidence: float, rows: int) -> Path:
    """Paths made on one half of the rows are tried on the other, as if that were as many rows as will be tested on."""
    found: dict[str, Path] = {}
    for path in paths(design, loss):
        if path.name == PLAIN[0] and design.answers < FEWEST:
            return path  # whatever the others are
        found[path.name] = path
    plain = next((name for name in PLAIN if name in found), next(iter(found)))
    if design.answers < FEWEST:
        return found[plain]
    halves = np.array_split(np.arange(design.answers), 2)
    expected: defaultdict[str, list[float]] = defaultdict(list)
    for own, other in (halves, halves[::-1]):
        tried_on = design.take(other)
        for path in paths(design.take(own), loss):
            expected[path.name].append(expected_cost(path, tried_on, loss, limit, confidence, rows))
    means = {name: float(np.mean(costs)) for name, costs in expected.items() if name in found}
    best = min(means, key=lambda name: means[name])
    return found[best if means[best] < means.get(plain, 1.0) - BETTER else plain]


def expected_cost(path: Path, trace: TraceBase, loss: Loss, limit: float, confidence: float, rows: int) -> float:
    """The cost of the last point before one fails, if so many rows are like these."""
    reached = 1.0
    for point in path.points:
        observed = np.resize(loss.observe(trace, trace.exits(point.policy)), rows)
        if loss.pvalue(observed, limit) > 1 - confidence:
            break
        reached = point.cost
    return reached
