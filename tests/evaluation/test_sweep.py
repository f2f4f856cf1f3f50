"""Pareto front and area, on curves made by hand and on any curve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.evaluation import OperatingPoint, area, pareto


def point(cost: float, score: float) -> OperatingPoint:
    return OperatingPoint(f"{cost}, {score}", {"accuracy": score}, 12 * cost, cost, 1 / cost, 0.0, 1.0, {})


curves = st.lists(st.builds(point, st.floats(0.1, 1.0), st.floats(0.0, 1.0)), max_size=12)


def test_front_by_hand() -> None:
    good = [point(0.2, 0.6), point(0.5, 0.8), point(1.0, 0.9)]
    beaten = [point(0.3, 0.6), point(0.5, 0.7), point(0.9, 0.8)]
    assert pareto([*beaten, *reversed(good)]) == good


@given(curves)
def test_no_point_of_the_front_is_beaten_and_every_other_is(points: list[OperatingPoint]) -> None:
    front = pareto(points)
    for one in points:
        better = [p for p in points if p.cost <= one.cost and p.score >= one.score]
        strictly = [p for p in better if p.cost < one.cost or p.score > one.score]
        assert (one in front) == (not strictly)
    assert len({(p.cost, p.score) for p in front}) == len(front)


def test_area_by_hand() -> None:
    # 0.6 from 0.2 to 0.6, then 0.9: half and half.
    assert area([point(0.6, 0.9)], 0.2, 0.6) == pytest.approx(0.75)
    assert area([point(0.4, 0.5), point(0.6, 0.9), point(0.8, 0.7)], 0.2, 0.6) == pytest.approx(0.75)
    assert area([], 0.2, 0.6) == pytest.approx(0.6)
    assert area([point(1.0, 0.9)], 1.0, 0.9) == 0.9


@given(curves, st.floats(0.1, 1.0), st.floats(0.0, 1.0))
def test_a_point_more_never_makes_it_smaller(points: list[OperatingPoint], cost: float, score: float) -> None:
    before = area(points, 0.1, 0.3)
    assert area([*points, point(cost, score)], 0.1, 0.3) >= before - 1e-12
    assert area(points[::-1], 0.1, 0.3) == pytest.approx(before)
    assert min([0.3, *(p.score for p in points)]) - 1e-9 <= before <= max([0.3, *(p.score for p in points)]) + 1e-9
