"""Choosing on one half and scoring on the other; areas, leads and cascades on made-up curves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.study.answers import answers_of
from benchmarks.study.crossfit import CrossFitted, Point, chosen_elsewhere, cross_fit, full_mflops
from benchmarks.study.curves import curve_of, estimate, mean_curve
from benchmarks.study.grid import Cell, plain
from benchmarks.study.halves import dev_halves, some_of
from benchmarks.study.static import Candidate, cascades, cross_fit_candidates
from benchmarks.study.summary import CASCADE, STATIC, Summary, winners
from offramp.evaluation.trace import Trace
from offramp.tasks import Examples
from tests.benchmarks.made_cells import DEPTH, SMALL, SOME_TASKS, made_cell, made_cells, made_trace

RULES = {2: ("entropy", "fixed"), 3: ("either", "entropy", "patience"), 1: ("patience", "fixed")}
shares = st.floats(0, 1, allow_nan=False)


def with_labels_shuffled(trace: Trace, rows: np.ndarray, seed: int = 5) -> Trace:
    assert trace.labels is not None
    labels = trace.labels.copy()
    labels[rows] = np.random.default_rng(seed).permutation(labels[rows])
    return dataclasses.replace(trace, labels=labels)


def with_other_logits(trace: Trace, rows: np.ndarray) -> Trace:
    logits = trace.logits.copy()
    logits[:, rows] = logits[:, rows][::-1]
    return dataclasses.replace(trace, logits=logits)


@given(rows=st.integers(2, 500))
def test_every_dev_row_is_in_one_half(rows: int) -> None:
    a, b = dev_halves(rows)
    assert sorted([*a, *b]) == list(range(rows))
    assert 0 <= len(b) - len(a) <= 1


def test_training_rows_are_drawn_once_and_for_all() -> None:
    examples = Examples([str(row) for row in range(50)], None, list(range(50)), "made up")
    some = some_of(examples, 10)
    assert some == some_of(examples, 10)
    assert len(some) == 10
    assert [int(text) for text in some.texts] == some.labels == sorted(some.labels)
    assert some.labels != list(range(10))
    assert some_of(examples, 50) is some_of(examples, None) is examples


@pytest.mark.parametrize("labels", RULES)
@pytest.mark.parametrize("change", [with_labels_shuffled, with_other_logits])
def test_nothing_is_chosen_on_the_half_that_is_reported(labels: int, change) -> None:  # type: ignore[no-untyped-def]
    """Whatever happens to the reported half, the settings scored on it are the same, and their scores are not."""
    trace = made_trace(80, seed=3, labels=labels)
    _, b = dev_halves(len(trace))
    before, after = (cross_fit(one, RULES[labels], (0.0, 0.0)) for one in (trace, change(trace, b)))
    assert len(before.on_b) > 2
    assert [point.policy for point in after.on_b] == [point.policy for point in before.on_b]
    assert [point.score for point in after.on_b] != [point.score for point in before.on_b]
    # The other way round the changed half is the one that chooses, so this would notice a change.
    assert [point.policy for point in after.on_a] != [point.policy for point in before.on_a]


def test_points_are_those_of_the_reported_half() -> None:
    trace = made_trace(80, seed=3)
    a, b = dev_halves(len(trace))
    points = chosen_elsewhere(trace, ("entropy",), a, b, 0.0)
    half = trace.take(b)
    for point in points:
        told = half.point(point.policy)
        assert point.score == pytest.approx(told.score, abs=1e-5)
        assert point.layers == pytest.approx(told.cost, abs=1e-5)
        assert point.flops == pytest.approx(told.mflops / full_mflops(half), abs=1e-5)


def test_what_no_model_does_as_well_is_not_chosen() -> None:
    trace = made_trace(80, seed=3)
    assert cross_fit(trace, ("entropy",), (1.0, 0.0)).on_b == []
    assert cross_fit(trace, ("entropy",), (1.0, 0.0)).on_a


@pytest.mark.parametrize(
    ("points", "free", "first", "area"),
    [
        ([(0.25, 0.8), (1.0, 0.8)], 0.5, 0.25, 0.8),  # level
        ([(0.25, 0.6), (1.0, 1.0)], 0.5, 0.25, 0.8),  # a straight line
        ([(1.0, 1.0)], 0.0, 0.5, 0.75),  # one model alone: mixed with no model at all
        ([(0.5, 0.8)], 0.8, 0.25, 0.8),  # goes on level beyond its last point
        ([(0.25, 0.5), (0.5, 0.9)], 0.5, 0.25, (0.25 * 0.7 + 0.5 * 0.9) / 0.75),
        ([(0.5, 0.6), (0.5, 0.8), (1.0, 0.7)], 0.7, 0.5, 0.7),  # two that cost the same are mixed
        ([], 0.6, 0.25, 0.6),  # nothing is better than no model
        ([(0.5, 0.6), (1.5, 0.8)], 0.6, 0.5, 0.65),  # a point beyond the full model's cost
    ],
)
def test_area(points: list[tuple[float, float]], free: float, first: float, area: float) -> None:
    assert curve_of(points, free).area(first) == pytest.approx(area)
    assert curve_of(reversed(points), free).area(first) == pytest.approx(area)


@given(st.lists(st.tuples(shares, shares), max_size=8), shares, st.floats(0.05, 0.9))
def test_area_is_the_mean_of_the_curve(points: list[tuple[float, float]], free: float, first: float) -> None:
    curve = curve_of(points, free)
    budgets = np.linspace(first, 1, 20_001)
    assert curve.area(first) == pytest.approx(np.interp(budgets, curve.costs, curve.scores).mean(), abs=2e-3)
    assert min(curve.scores) - 1e-9 <= curve.area(first) <= max(curve.scores) + 1e-9


def test_the_curve_of_both_halves_is_their_mean_at_each_budget() -> None:
    fitted = CrossFitted([Point("a", 0.5, 0.4, 0.8)], [Point("b", 1.0, 0.9, 0.9)])
    curve = mean_curve(fitted, (0.4, 0.5), "layers")
    assert curve.at(0.5) == pytest.approx((0.8 + 0.7) / 2)
    assert mean_curve(fitted, (0.4, 0.5), "flops").at(0.4) == pytest.approx((0.8 + (0.5 + 0.4 * 0.4 / 0.9)) / 2)
    assert curve.area(0.5) == pytest.approx((0.8 + 0.8) / 2)


def test_intervals_are_student_s() -> None:
    one = estimate([1.0, 2.0, 3.0])
    assert one is not None
    assert one.mean == pytest.approx(2)
    assert one.half_width == pytest.approx(4.303 / 3**0.5)
    assert estimate([1.0]).half_width is None  # type: ignore[union-attr]
    assert estimate([]) is None


def test_who_wins() -> None:
    ranking = {"a": estimate([0.9, 0.92]), "b": estimate([0.8, 0.81]), "c": estimate([0.5, 0.51])}
    assert winners(ranking) == ("a", ["a", "b"])  # type: ignore[arg-type]
    assert winners({}) == (None, [])


def test_the_static_curve_has_no_lead_over_itself() -> None:
    summary = Summary(SMALL, made_cells(), SOME_TASKS)
    for task in SOME_TASKS:
        one = summary.over_seeds(summary.elue, task.name, STATIC)
        assert one is not None
        assert one.mean == pytest.approx(0, abs=1e-9)
        assert summary.over_seeds(summary.elue, task.name, "elasticbert").mean != pytest.approx(0)  # type: ignore[union-attr]


def static_cells(short: list[list[float]], full: list[list[float]], labels: list[int]) -> dict[int, dict]:
    """Cells of two static models that say this."""
    cells = {}
    for layers, said in ((2, short), (DEPTH, full)):
        trace = made_trace(len(labels), (layers,))
        logits = np.array([said], dtype=np.float32)
        trace = dataclasses.replace(
            trace, logits=logits, labels=np.array(labels), lengths=np.full(len(labels), 10), task_numbers=(0, 1)
        )
        found = made_cell(Cell("small", "sst-2", plain(layers), 1), rows=len(labels))
        cells[layers] = {**found, "answers": answers_of(trace, whole=layers == DEPTH)}
    return cells


def test_a_cascade_sends_on_what_the_short_model_is_not_sure_of() -> None:
    labels = [0, 1, 0, 1] * 4
    sure, unsure_and_wrong = [[5.0, -5.0], [-5.0, 5.0]], [[-0.1, 0.1], [0.1, -0.1]]
    short = [(sure if row % 4 < 2 else unsure_and_wrong)[label] for row, label in enumerate(labels)]
    full = [sure[label] for label in labels]
    found = {one.halves[0].policy: one.halves for one in cascades(static_cells(short, full, labels))}
    halves = dev_halves(len(labels))
    first_unsure = next(name for name in found if name.endswith(f"level {64 // 2}"))
    for half, point in zip(halves, found[first_unsure], strict=True):
        share = float(np.mean(half % 4 >= 2))
        assert point.score == 1.0
        assert point.layers == pytest.approx(0.5 + share, abs=1e-5)
        assert point.flops == pytest.approx(point.layers, abs=0.02)
    assert {"2 layers", "4 layers"} <= set(found)
    assert len(found) == 2 + len(labels) - 1


def test_a_cascade_is_the_static_curve_where_there_is_no_entropy() -> None:
    summary = Summary(SMALL, made_cells(), SOME_TASKS)
    assert summary.fitted("sts-b", CASCADE, 1) == summary.fitted("sts-b", STATIC, 1)
    assert summary.fitted("sst-2", CASCADE, 1) != summary.fitted("sst-2", STATIC, 1)


def test_static_models_are_chosen_on_the_other_half_too() -> None:
    def candidate(cost: float, on_a: float, on_b: float) -> Candidate:
        return Candidate((Point("x", cost, cost, on_a), Point("x", cost, cost, on_b)))

    cheap, good_on_a, dear = candidate(0.25, 0.6, 0.6), candidate(0.5, 0.9, 0.5), candidate(1.0, 0.8, 0.7)
    fitted = cross_fit_candidates([dear, cheap, good_on_a], (0.5, 0.5))
    assert fitted.on_b == [cheap.halves[1], good_on_a.halves[1]]
    assert fitted.on_a == [cheap.halves[0], dear.halves[0]]
