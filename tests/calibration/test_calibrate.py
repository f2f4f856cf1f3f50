"""From a trace and a promise to a policy: what is chosen, what it says of itself, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp import OfframpError
from offramp.calibration import Promise, Uncertified, calibrate_trace
from offramp.calibration.calibrate import Trial, why_not, with_design
from offramp.calibration.losses import AccuracyGap, Cost, F1Gap, Inconsistency, Loss, loss_of
from offramp.calibration.paths import paths, temperatures_of
from offramp.calibration.tables import percent_at_most
from offramp.calibration.temperature import fit_temperatures
from offramp.evaluation import Trace
from offramp.policies import REGISTRY, Confidence, Fixed
from tests.evaluation.made_traces import gated_trace, random_trace

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"
LOSSES: list[Loss] = [AccuracyGap(), Inconsistency(), F1Gap()]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.load(TRACES / "sst2.npz").take(np.arange(3000))


@pytest.mark.parametrize("method", ["fixed_sequence", "bonferroni", "expectation"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_what_is_found_keeps_the_promise_where_it_was_tested(trace: Trace, loss: Loss, method: str) -> None:
    promise = Promise(loss, 0.03, method=method)
    if method == "expectation" and isinstance(loss, F1Gap):
        with pytest.raises(OfframpError, match="no mean over answers"):
            calibrate_trace(trace, promise)
        return
    found = calibrate_trace(trace, promise)
    assert found.risk <= found.bound <= 0.03
    assert found.point.cost < 0.6
    assert found.point == replace(found.point, policy=str(found.policy))
    assert sum(found.exits.values()) == len(trace)
    passed = [one for one in found.tested if one.passes]
    assert min(one.cost for one in passed) == pytest.approx(found.point.cost)
    assert calibrate_trace(trace, promise) == found


def test_a_stricter_promise_costs_more(trace: Trace) -> None:
    costs = [calibrate_trace(trace, Promise(AccuracyGap(), limit)).point.cost for limit in (0.01, 0.02, 0.05)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
    sure = [calibrate_trace(trace, Promise(AccuracyGap(), 0.02, confidence)).point.cost for confidence in (0.5, 0.999)]
    assert sure[0] < sure[1]


@pytest.mark.parametrize("flops", [False, True])
def test_the_best_within_a_budget(trace: Trace, flops: bool) -> None:
    loss = Cost(flops=flops)
    found = calibrate_trace(trace, Promise(loss, 0.5))
    exits = trace.exits(found.policy)
    of_all = trace.ebert_mflops[exits, np.arange(len(trace))].sum() / trace.full_depth_mflops.sum()
    spent = of_all if flops else trace.point(found.policy).cost
    assert 0.4 < spent <= found.bound <= 0.5
    assert found.risk == pytest.approx(spent, abs=0.02)
    assert found.point.score > trace.point("fixed(3)").score - 0.002


def test_within_a_budget_the_best_score_counts_and_not_the_highest_cost() -> None:
    """Exits in the middle that are better than the last: to compute more is worse."""
    trace = random_trace(samples=2000)
    logits = trace.logits.copy()
    logits[4:] = logits[:2]
    trace = replace(trace, logits=logits)
    found = calibrate_trace(trace, Promise(Cost(), 0.95))
    points = [trace.point(one.policy) for one in found.tested if one.passes]
    best = max(point.score for point in points)
    assert found.tested_on == 2000, "the path that is fixed in advance"
    assert found.point.score == best
    assert found.point.cost == min(point.cost for point in points if point.score == best)
    assert found.point.cost < max(point.cost for point in points)


def test_one_policy_alone_is_certified_or_not(trace: Trace) -> None:
    found = calibrate_trace(trace, Promise(Inconsistency(), 0.02), policy="entropy(0.2)")
    assert (str(found.policy), found.tested_on) == ("entropy(0.2)", 3000)
    with pytest.raises(Uncertified, match="cannot support"):
        calibrate_trace(trace, Promise(Inconsistency(), 0.02), policy="fixed(1)")


def test_too_few_rows_say_how_many_would_do(trace: Trace) -> None:
    with pytest.raises(Uncertified, match=r"200 rows cannot support .* about (\d+) rows") as refused:
        calibrate_trace(trace.take(np.arange(200)), Promise(Inconsistency(), 0.01))
    needed = int(str(refused.value).split("about ")[1].split()[0])
    assert 300 < needed < 1000
    assert calibrate_trace(trace.take(np.arange(2 * needed)), Promise(Inconsistency(), 0.01)).point.cost < 0.98


@pytest.mark.parametrize("rows", [1, 7])
def test_rows_too_few_to_look_for_a_policy_on(rows: int) -> None:
    with pytest.raises(Uncertified, match=f"^{rows} rows cannot support .* give 8 or more$"):
        calibrate_trace(random_trace(samples=rows, classes=1), Promise(Inconsistency(tolerance=1.0), 0.1))


def test_rows_that_a_path_is_made_on_are_needed_as_well(trace: Trace) -> None:
    """A path that has one point is none that was asked for."""
    some, promise = trace.take(np.arange(90)), Promise(Inconsistency(), 0.05)
    trial = Trial("made", (Confidence(0.999),), some, 1.0)
    alone, with_others = (why_not(rows, promise, [trial]) for rows in (90, 120))
    tested, all_rows = (int(said.split("about ")[1].split()[0].replace(",", "")) for said in (alone, with_others))
    assert all_rows == pytest.approx(tested * 4 / 3, abs=1)
    assert "loses" in why_not(90, promise, [trial], "confidence(0.999)")
    assert with_design(100_000) == 104_000


def test_no_number_of_rows_would_do() -> None:
    """Exits that know nothing, and are sure of it."""
    trace = random_trace(samples=400)
    labels = np.where(np.arange(400) % 20, trace.labels, 1 - np.asarray(trace.labels))
    logits = trace.logits.copy()
    logits[:-1] = 50 * np.random.default_rng(0).choice([-1, 1], logits[:-1].shape)
    with pytest.raises(Uncertified, match="allow more loss"):
        calibrate_trace(replace(trace, logits=logits, labels=labels), Promise(AccuracyGap(), 0.02))


def test_numbers_within_a_tolerance() -> None:
    trace = random_trace(samples=1500, classes=1)
    steady = trace.logits[-1:] + np.linspace(2, 0, 6)[:, None, None] * np.abs(trace.logits[:1])
    trace = replace(trace, logits=steady.astype(np.float32))
    found = calibrate_trace(trace, Promise(Inconsistency(tolerance=1.0), 0.1))
    assert found.policy.name == "patience"
    moved = np.abs(trace.predictions(trace.exits(found.policy)) - trace.full_depth) > 1.0
    assert moved.mean() < 0.1


def test_gates_may_be_raised() -> None:
    """Two traces of the same answers: the one whose gates keep less is cheaper, and is taken."""
    trace = gated_trace(samples=120)
    sure = replace(trace, logits=np.repeat(20 * trace.logits[-1:], 6, axis=0))
    assert sure.heads_kept is not None
    assert sure.neurons_kept is not None
    less = replace(sure, heads_kept=sure.heads_kept // 2, neurons_kept=sure.neurons_kept // 2).compared_with(sure)
    found = calibrate_trace(sure, Promise(Inconsistency(), 0.2), gated={0.5: less})
    assert found.gate_threshold == 0.5
    assert calibrate_trace(sure, Promise(Inconsistency(), 0.2)).gate_threshold is None
    wrong = replace(less, logits=-less.logits)
    assert calibrate_trace(sure, Promise(Inconsistency(), 0.2), gated={0.5: wrong}).gate_threshold is None


@pytest.mark.parametrize(
    ("limit", "confidence", "method", "message"),
    [
        (0.0, 0.95, "fixed_sequence", "never be shown to lose nothing"),
        (1.0, 0.95, "fixed_sequence", "between 0 and 1"),
        (-0.1, 0.95, "fixed_sequence", "between 0 and 1"),
        (0.01, 1.0, "fixed_sequence", "confidence of 1"),
        (0.01, 0.0, "fixed_sequence", "confidence of 0"),
        (0.01, 0.95, "hope", "method 'hope'"),
    ],
)
def test_promises_that_make_no_sense(trace: Trace, limit: float, confidence: float, method: str, message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        calibrate_trace(trace, Promise(AccuracyGap(), limit, confidence, method))


def broken(trace: Trace, what: str) -> Trace:
    logits = trace.logits.copy()
    logits[2, 7] = np.nan
    labels = np.asarray(trace.labels)
    changes: dict[str, dict[str, Any]] = {
        "nan": {"logits": logits},
        "one class": {"labels": np.zeros_like(labels)},
        "own answers": {"labels": trace.full_depth},
        "one exit": {"logits": trace.logits[-1:], "exit_layers": (6,)},
    }
    return replace(trace, **changes[what])


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nan", "NaN or infinity to 1 of the rows"),
        ("one class", "all rows have the same label"),
        ("own answers", "the model's own answers"),
        ("one exit", "one exit"),
    ],
)
def test_rows_that_say_nothing(trace: Trace, what: str, message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        calibrate_trace(broken(trace, what), Promise(AccuracyGap(), 0.02))


@pytest.mark.parametrize(
    ("classes", "metric", "settings", "message"),
    [
        (2, "matthews", {}, "Matthews' correlation is no mean"),
        (3, "macro_f1", {}, "mean of ratios"),
        (2, "accuracy_f1", {}, "limit one of them"),
        (1, "pearson", {}, "a correlation is no mean.*--tolerance"),
        (1, "pearson", {"consistency": True}, "--tolerance"),
        (2, "accuracy", {"bound": "luck"}, "bound 'luck'"),
        (2, None, {"labelled": False}, "no labels.*--consistency"),
    ],
)
def test_losses_that_cannot_be_promised(classes: int, metric: str, settings: dict[str, Any], message: str) -> None:
    trace = random_trace(classes=classes, labelled=settings.pop("labelled", True))
    asked = {"consistency": False, "tolerance": None, "bound": "exact", **settings}
    with pytest.raises(OfframpError, match=message):
        loss_of(trace, metric, **asked)


@pytest.mark.parametrize("classes", [2, 3])
def test_every_rule_has_a_path_from_dear_to_cheap(classes: int) -> None:
    made = list(paths(random_trace(samples=400, classes=classes), Inconsistency()))
    swept = {rule.name for rule in REGISTRY.values() if rule is not Fixed and rule.name not in ("scripted", "both")}
    assert swept <= {path.name for path in made}
    assert any("each layer its own" in path.name for path in made)
    for path in made:
        costs = [point.cost for point in path.points]
        assert costs == sorted(costs, reverse=True)
        assert costs[0] > costs[-1]


@pytest.mark.parametrize("loss", [AccuracyGap(), Inconsistency()], ids=lambda loss: loss.name)
def test_thresholds_of_each_layers_own_are_worth_it(loss: Loss) -> None:
    """On rows that they were not made on they save more than one threshold does, at the same loss."""
    trace = Trace.load(TRACES / "imdb.npz")
    others = trace.take(np.arange(3000, 10_000))
    by_name = {path.name: path for path in paths(trace.take(np.arange(3000)), loss)}

    def cheapest(name: str) -> float:
        found = [(others.exits(point.policy), point) for point in by_name[name].points]
        return min(Cost().observe(others, e).mean() for e, _ in found if loss.observe(others, e).mean() <= 0.01)

    assert cheapest("entropy, each layer its own") < cheapest("entropy") - 0.02


def test_temperatures_are_found_again() -> None:
    draw = np.random.default_rng(3)
    true = 3 * draw.normal(size=(8000, 3))
    labels = np.array([draw.choice(3, p=p) for p in np.exp(true) / np.exp(true).sum(1, keepdims=True)])
    found = fit_temperatures(np.stack([true, 2.5 * true, true / 4]).astype(np.float32), labels)
    assert found == pytest.approx([1, 2.5, 0.25], rel=0.08)


def test_a_temperature_for_each_layer() -> None:
    trace = random_trace(exits=3, samples=300)
    trace = replace(trace, exit_layers=(2, 4, 6), shape=replace(trace.shape, depth=6))
    temperatures = temperatures_of(trace)
    assert len(temperatures) == 6
    assert temperatures[0] == temperatures[2] == temperatures[4] == 1.0
    assert 1.0 not in temperatures[1::2]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (0.0197, "1.97 %"),
        (0.01961, "1.97 %"),
        (0.02, "2.00 %"),
        (0.1234, "12.4 %"),
        (0.5, "50 %"),
    ],
)
def test_bounds_are_rounded_up(share: float, shown: str) -> None:
    assert percent_at_most(share) == shown


@pytest.mark.parametrize(("confidence", "said"), [(0.95, "95 %"), (0.57, "57 %"), (0.9999999, "99.99999 %")])
def test_a_confidence_is_said_as_it_is(confidence: float, said: str) -> None:
    promise = str(Promise(AccuracyGap(), 0.01, confidence))
    assert promise == f"at most 1 % of accuracy is lost, with {said} confidence"
