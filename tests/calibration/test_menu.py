"""The menu: other limits of the same loss, each as if it alone had been asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offramp.calibration import Promise, calibrate_trace
from offramp.calibration.certificate import certificate_of, read_certificate
from offramp.calibration.certify import METHODS
from offramp.calibration.losses import AccuracyGap, Cost, F1Gap, Inconsistency, Loss
from offramp.calibration.menu import MENU, MenuPoint, cheaper_with_more
from offramp.evaluation import Trace
from offramp.policies import Fixed, policy_from_text
from tests.evaluation.made_traces import gated_trace

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.load(TRACES / "sst2.npz").take(np.arange(800))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", [AccuracyGap(), Inconsistency()], ids=lambda loss: loss.name)
def test_a_place_on_the_menu_is_what_asking_for_it_alone_gives(trace: Trace, loss: Loss, method: str) -> None:
    """On the path that is fixed in advance: the other one is made for the limit that was asked for."""
    short = trace.take(np.arange(600))
    found = calibrate_trace(short, Promise(loss, 0.02, method=method), menu=(0.03, 0.05))
    assert len(found.menu) == 3
    for limit, point in ((point.limit, point) for point in found.menu if point.limit != 0.02):
        alone = calibrate_trace(short, Promise(loss, limit, method=method), menu=())
        assert alone.path == "entropy, fixed in advance"
        assert (point.policy, point.risk, point.bound) == (alone.policy, alone.risk, alone.bound)
        assert (point.mean_layers, point.score) == (alone.point.mean_layers, alone.point.score)


@pytest.mark.parametrize("loss", [AccuracyGap(), Inconsistency(), F1Gap()], ids=lambda loss: loss.name)
def test_more_may_be_lost_where_less_is_computed(trace: Trace, loss: Loss) -> None:
    found = calibrate_trace(trace, Promise(loss, 0.025))
    limits, costs = zip(*((point.limit, point.cost) for point in found.menu), strict=True)
    assert list(limits) == sorted(set(limits))
    assert set(limits) <= {*MENU, 0.025}
    assert list(costs) == sorted(costs, reverse=True)
    assert all(point.risk <= point.bound <= point.limit for point in found.menu)
    asked = next(point for point in found.menu if point.limit == 0.025)
    assert (asked.policy, asked.risk, asked.bound, asked.cost) == (
        found.policy,
        found.risk,
        found.bound,
        found.point.cost,
    )


def test_the_menu_changes_nothing_about_what_was_asked(trace: Trace) -> None:
    promise = Promise(AccuracyGap(), 0.01)
    assert replace(calibrate_trace(trace, promise), menu=()) == calibrate_trace(trace, promise, menu=())


def test_a_budget_has_no_menu(trace: Trace) -> None:
    assert calibrate_trace(trace, Promise(Cost(), 0.5)).menu == ()


def test_one_policy_alone_stands_where_it_was_asked_for_and_where_less_is_allowed(trace: Trace) -> None:
    found = calibrate_trace(trace, Promise(Inconsistency(), 0.03), policy="entropy(0.2)")
    assert {str(point.policy) for point in found.menu} == {"entropy(0.2)"}
    assert [point.limit for point in found.menu][-1] == 0.03


def test_all_points_of_a_menu_run_with_the_same_gates() -> None:
    """Higher gates would let all rows go at once, half of them wrong: they can be certified to lose 90 %."""
    trace = gated_trace(samples=120)
    sure = np.repeat(200 * trace.logits[-1:], 6, axis=0)
    half = np.where(np.arange(120) % 2, 1, -1)[:, None]
    own = replace(trace, logits=np.concatenate([-1e-9 * sure[:1], sure[1:]]))
    other = replace(trace, logits=np.concatenate([half * sure[:1], sure[1:]])).compared_with(own)
    found = calibrate_trace(own, Promise(Inconsistency(), 0.2), gated={0.5: other}, menu=(0.1, 0.9))
    assert found.gate_threshold is None
    assert max(point.risk for point in found.menu) < 0.05


def test_a_point_no_cheaper_than_a_lower_limit_is_left_out_unless_it_was_asked_for() -> None:
    def point(limit: float, cost: float) -> MenuPoint:
        return MenuPoint(limit, Fixed(3), 0.0, limit, 12 * cost, cost, 1 / cost, None)

    points = [point(0.05, 0.5), point(0.01, 0.5), point(0.1, 0.25), point(0.02, 0.5)]
    assert [one.limit for one in cheaper_with_more(points, 0.02)] == [0.01, 0.02, 0.1]


def test_a_menu_is_read_as_it_was_written_and_may_be_missing(trace: Trace, tmp_path: Path) -> None:
    certificate = certificate_of(calibrate_trace(trace, Promise(AccuracyGap(), 0.01)), trace)
    written = certificate.write(tmp_path)
    assert len(certificate.menu) > 2
    assert read_certificate(tmp_path).menu == certificate.menu
    data = json.loads(written.read_text())
    names = {"limit", "policy", "risk", "bound", "mean_layers", "cost", "speed_up", "score", "agreement"}
    assert all(set(point) == names for point in data["certificate"]["menu"])
    assert policy_from_text(str(certificate.menu[0].policy)) == certificate.menu[0].policy
    del data["certificate"]["menu"]  # as older versions wrote it
    written.write_text(json.dumps(data))
    assert read_certificate(tmp_path).menu == ()
