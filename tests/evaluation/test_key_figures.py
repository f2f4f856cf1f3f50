"""The numbers that are picked out of a curve."""

from __future__ import annotations

import dataclasses
import math

import pytest

from offramp.evaluation.key_figures import (
    all_points,
    best_at,
    cheapest_within,
    front,
    full_depth,
    key_figures,
    main_metric,
    value,
    written,
)
from offramp.evaluation.results import Sweep
from tests.evaluation.sample_results import sample_results


@pytest.mark.parametrize("metric", ["accuracy", "agreement"])
@pytest.mark.parametrize("seed", range(3))
def test_picks(metric: str, seed: int) -> None:
    """Each pick against its definition, over every point."""
    results = sample_results(seed=seed, points=15)
    points = all_points(results)
    best = front(points, metric)
    for point in points:
        beaten = any(
            (p.cost <= point.cost and value(p, metric) > value(point, metric))
            or (p.cost < point.cost and value(p, metric) >= value(point, metric))
            for p in points
        )
        same = [(p.cost, value(p, metric)) for p in best].count((point.cost, value(point, metric)))
        assert same == (0 if beaten else 1)
    within = cheapest_within(results, metric)
    assert within in best
    enough = [p.cost for p in points if value(p, metric) >= full_depth(results, metric) - 0.01]
    assert within.cost == min(enough)
    half = best_at(results, metric, 2)
    assert half in best
    assert value(half, metric) == max(value(p, metric) for p in points if p.cost <= 0.5)


def test_picks_at_the_edge() -> None:
    """A point at exactly half of the layers is within half; of two that cost the same, the better one is taken."""
    results = sample_results(points=5)
    point = dataclasses.replace(results.sweeps[0].points[0], cost=0.5, scores={"accuracy": 0.99})
    worse = dataclasses.replace(point, policy="fixed(1)", scores={"accuracy": 0.98})
    edge = dataclasses.replace(results, sweeps=[Sweep("entropy", [worse, point], None)])
    assert best_at(edge, "accuracy", 2) == point
    assert cheapest_within(edge, "accuracy") == point


def test_nothing_is_cheap_enough() -> None:
    results = sample_results(depth=1, rows=1, points=2)
    figures = key_figures(results, "accuracy")
    assert figures["score_2x"] is None
    assert figures["cost_at_minus_1"] == 1


def test_no_labels() -> None:
    results = sample_results(labelled=False)
    assert main_metric(results) == "agreement"
    figures = key_figures(results, "agreement")
    assert figures["full_depth"] == 1
    assert figures["area"] is figures["elue"] is None


def test_scores_that_are_no_numbers() -> None:
    """A correlation with constant answers is NaN: such a point is never the best."""
    results = sample_results(policies=("entropy",), points=6)
    sweep = results.sweeps[0]
    broken = dataclasses.replace(sweep.points[0], scores={"accuracy": math.nan, "f1": math.nan})
    results = dataclasses.replace(results, sweeps=[dataclasses.replace(sweep, points=[broken, *sweep.points[1:]])])
    assert broken not in front(all_points(results), "accuracy")
    assert key_figures(results, "accuracy")["score_4x"] == best_at(results, "accuracy", 4).score


@pytest.mark.parametrize(
    ("number", "metric", "text"),
    [
        (0.9237, "accuracy", "92.4 %"),
        (0.5, "exact", "50.0 %"),
        (0.583, "matthews", "58.3"),
        (None, "f1", "–"),
        (math.nan, "pearson", "–"),
    ],
)
def test_written(number: float | None, metric: str, text: str) -> None:
    assert written(number, metric) == text
