"""Whether a promise still holds on new rows: false alarms, what is found, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from offramp.calibration import Promise, calibrate_trace, pvalues
from offramp.calibration.certificate import QUANTILES, Certificate, certificate_of, confidence_quantiles
from offramp.calibration.drift import BROKEN, HOLDS, UNKNOWN, check_promise, check_weights, promise_options
from offramp.calibration.losses import AccuracyGap, Cost, F1Gap, Inconsistency, Loss
from offramp.calibration.shift import ERROR, MARKED, NONE, SLIGHT, counts_moved, merged, quantiles_moved
from offramp.errors import OfframpError
from offramp.evaluation import Trace
from tests.evaluation.made_traces import random_trace

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"
POLICY = "entropy(0.55, normalised=True)"
LOSSES: list[Loss] = [Inconsistency(), AccuracyGap(), F1Gap(), Cost(), Cost(flops=True)]
BOUNDED = [*LOSSES, *(kind(bound) for kind in (Inconsistency, AccuracyGap) for bound in ("betting", "hoeffding"))]
BOUNDED += [Inconsistency("hoeffding_bentkus"), AccuracyGap("hoeffding_bentkus")]
ALLOWED = 0.05


@cache
def real(name: str) -> Trace:
    return replace(Trace.load(TRACES / f"{name}.npz"), data="")


def some(trace: Trace, rows: int, seed: int = 0) -> Trace:
    return trace.take(np.random.default_rng(seed).integers(len(trace), size=rows))


def certified(trace: Trace, loss: Loss, limit: float, confidence: float = 0.95, **changes: Any) -> Certificate:
    """Of one policy, whatever was found of it, with another limit afterwards."""
    loose = calibrate_trace(trace, Promise(loss, 0.9), policy=POLICY)
    return replace(certificate_of(loose, trace), promise=Promise(loss, limit, confidence), **changes)


def of_other_rows(certificate: Certificate, trace: Trace) -> Certificate:
    counts = np.bincount(exits_of(trace), minlength=len(trace.exit_layers)).tolist()
    exits = {str(layer): count for layer, count in zip(trace.exit_layers, counts, strict=True)}
    reference = {"exits": exits, **confidence_quantiles(trace, certificate.policy)}
    return replace(certificate, reference=reference, data={**certificate.data, "rows": len(trace)})


def seldom(alarms: int, trials: int, share: float) -> bool:
    """Not more often than that share, but for what happens once in a thousand times."""
    return alarms <= stats.binom.ppf(0.999, trials, share)


def exits_of(trace: Trace) -> np.ndarray:
    return trace.exits(POLICY)


@pytest.mark.parametrize("limit", [0.05, 0.2, -0.05, -0.2, -0.5])
def test_the_exact_test_of_pairs_is_exact_on_both_sides(limit: float) -> None:
    """Over every outcome there is, and every rate at which answers differ."""
    n = 25
    cells = np.array([(worse, better, n - worse - better) for worse in range(n + 1) for better in range(n + 1 - worse)])
    found = np.array([pvalues.paired(worse, better, n, limit) for worse, better, _ in cells])
    assert np.isfinite(found).all()
    largest = 0.0
    for mean in (limit, limit + 0.03):
        for rate in np.linspace(abs(mean) + 1e-9, 1, 40):
            shares = [(rate + mean) / 2, (rate - mean) / 2, 1 - rate]
            chance = stats.multinomial.pmf(cells, n, shares)
            for level in (0.01, 0.05, 0.2):
                assert chance[found <= level].sum() <= level
            largest = max(largest, chance[found <= 0.2].sum())
    assert largest > 0.12, "it is not merely careful"


def test_no_loss_is_over_a_limit_that_fewer_answers_even_differ_by() -> None:
    assert pvalues.paired(0, 0, 100_000, 0.01) < 1e-5
    assert pvalues.paired(0, 0, 100_000, -0.01) == 1.0
    assert pvalues.paired(0, 0, 100, 0.0) == 1.0


@pytest.mark.parametrize("loss", BOUNDED, ids=repr)
def test_a_loss_at_the_limit_is_seldom_called_over_or_under_it(loss: Loss) -> None:
    """Rows are drawn from 10,000, of which the loss is known: it is the limit itself."""
    trace = real("imdb")
    observed = loss.observe(trace, exits_of(trace))
    draw, trials = np.random.default_rng(0), 150
    called = np.zeros(2)
    for _ in range(trials):
        drawn = draw.choice(observed, 400)
        limit = loss.risk(observed)
        called += [test(drawn, limit) <= ALLOWED for test in (loss.pvalue, loss.pvalue_within)]
    assert all(seldom(int(alarms), trials, ALLOWED) for alarms in called)


@pytest.mark.parametrize(("loss", "factor"), [(loss, 0.1 if not isinstance(loss, Cost) else 0.85) for loss in LOSSES])
def test_a_loss_far_over_the_limit_is_found(loss: Loss, factor: float) -> None:
    trace = real("sst2")
    observed = loss.observe(trace, trace.exits("entropy(0.8, normalised=True)"))
    drawn = np.random.default_rng(0).choice(observed, 4000)
    assert loss.pvalue_within(drawn, factor * loss.risk(observed)) <= ALLOWED


@pytest.mark.parametrize(("name", "loss"), [("sst2", Inconsistency()), ("imdb", Inconsistency()), ("imdb", Cost())])
def test_rows_of_the_same_kind_seldom_alarm(name: str, loss: Loss) -> None:
    """Two hundred times some rows to calibrate on, and others to check, of one trace; the promise is just true."""
    trace = real(name)
    risk = loss.risk(loss.observe(trace, exits_of(trace)))
    any_rows = certified(trace, loss, risk)
    broken = shifted = marked = 0
    trials = 200
    for trial in range(trials):
        order = np.random.default_rng(trial).permutation(len(trace))
        found = check_promise(trace.take(order[1500:3500]), of_other_rows(any_rows, trace.take(order[:1500])))
        broken += found.verdict == BROKEN
        shifted += found.shift != NONE
        marked += found.shift == MARKED
    assert seldom(broken, trials, ALLOWED)
    assert seldom(shifted, trials, ERROR)
    assert marked == 0


def test_enough_rows_of_the_same_kind_hold() -> None:
    trace = real("sst2")
    for seed in range(20):
        order = np.random.default_rng(seed).permutation(len(trace))
        certificate = certified(trace.take(order[:2000]), Inconsistency(), 0.02)
        found = check_promise(trace.take(order[2000:]), certificate)
        assert (found.verdict, found.shift) == (HOLDS, NONE)
        assert found.advice == ("Keep the policy.",)


def hard_rows(trace: Trace) -> Trace:
    """The quarter that full depth is least sure of."""
    gap = np.abs(trace.logits[-1, :, 0] - trace.logits[-1, :, 1])
    return trace.take(np.argsort(gap)[: len(trace) // 4])


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("loss", [Inconsistency(), Cost()], ids=lambda loss: loss.name)
def test_hard_rows_break_a_promise_and_are_seen_to_be_others(loss: Loss, labelled: bool) -> None:
    trace = real("sst2")
    certificate = certified(trace, loss, 1.2 * loss.risk(loss.observe(trace, exits_of(trace))))
    hard = hard_rows(trace)
    found = check_promise(hard if labelled else replace(hard, labels=None), certificate, "offramp calibrate M --data D")
    assert (found.verdict, found.shift) == (BROKEN, MARKED)
    assert found.advice[0].startswith("Calibrate again on rows like these: offramp calibrate M --data D --max-")
    assert found.tested is not None
    assert found.tested.bound >= found.tested.risk > found.limit
    assert {one.name for one in found.shifts} == {"exits", "confidence", "full_confidence"}


def test_labels_that_changed_break_a_promise_while_nothing_has_moved() -> None:
    trace = some(real("sst2"), 4000)
    certificate = certified(trace, AccuracyGap(), 0.005)
    full_depth_is_right = replace(trace, labels=trace.full_depth)
    found = check_promise(full_depth_is_right, certificate)
    assert (found.verdict, found.shift) == (BROKEN, NONE)
    assert any("--policy 'fixed(6)'" in line for line in found.advice)
    allowed = float(next(line for line in found.advice if "allow more" in line).split("--max-loss ")[1].rstrip(".)"))
    assert allowed >= found.tested.bound
    assert (
        check_promise(full_depth_is_right, replace(certificate, promise=Promise(AccuracyGap(), allowed))).verdict
        == HOLDS
    )


def test_without_labels_accuracy_holds_where_hardly_any_answer_differs() -> None:
    """And then it holds with any labels: the worst are those of full depth."""
    trace = some(real("sst2"), 4000)
    certificate = certified(trace, AccuracyGap(), 0.03)
    found = check_promise(replace(trace, labels=None), certificate)
    assert found.verdict == HOLDS
    assert (found.tested.loss, found.tested.within) == ("inconsistency", None)
    worst = check_promise(replace(trace, labels=trace.full_depth), certificate)
    assert worst.tested.risk == pytest.approx(found.tested.risk)
    assert worst.verdict == HOLDS


@pytest.mark.parametrize(("loss", "tested"), [(AccuracyGap(), "inconsistency"), (F1Gap(), None)])
def test_without_labels_it_may_be_unknown_how_much_is_lost(loss: Loss, tested: str | None) -> None:
    trace = some(real("sst2"), 1000)
    found = check_promise(replace(trace, labels=None), certified(trace, loss, 0.006))
    assert found.verdict == UNKNOWN
    assert not found.labelled
    assert (found.tested and found.tested.loss) == tested
    assert found.rows_needed >= 1000
    assert "label about" in found.advice[1]
    hard = check_promise(replace(hard_rows(trace), labels=None), certified(trace, loss, 0.006))
    assert hard.verdict == UNKNOWN
    assert hard.shift == MARKED
    assert "Do not rely" in hard.advice[0]
    assert "labelled: offramp calibrate" in hard.advice[2]


@pytest.mark.parametrize("loss", [Inconsistency(), AccuracyGap(), F1Gap()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_the_rows_that_are_asked_for_tell(loss: Loss, factor: float) -> None:
    trace = real("sst2")
    few = some(trace, 400)
    limit = factor * loss.risk(loss.observe(few, exits_of(few)))
    certificate = certified(trace, loss, limit)
    found = check_promise(few, certificate)
    assert found.verdict == UNKNOWN
    times = round(1.2 * found.rows_needed / 400) + 1
    many = few.take(np.tile(np.arange(400), times))
    assert check_promise(many, certificate).verdict == (HOLDS if factor > 1 else BROKEN)


def test_a_loss_at_the_limit_is_told_by_no_number_of_rows() -> None:
    trace = some(real("sst2"), 500)
    loss = Inconsistency()
    found = check_promise(trace, certified(trace, loss, loss.risk(loss.observe(trace, exits_of(trace)))))
    assert (found.verdict, found.rows_needed) == (UNKNOWN, None)
    assert "no number of rows" in found.advice[1]


def test_all_of_it_is_json_and_holds_what_it_was() -> None:
    trace = some(real("sst2"), 500)
    certificate = certified(trace, AccuracyGap(), 0.01)
    said = json.loads(json.dumps(check_promise(trace, certificate).to_json()))
    assert said["verdict"] == UNKNOWN
    assert said["shift"] == NONE
    assert said["before"]["cost"] == pytest.approx(said["cost"])
    assert said["before"]["risk"] == pytest.approx(said["tested"]["risk"])
    assert said["promise"] == "at most 1 % of accuracy is lost, with 95 % confidence"


def test_numbers_have_exits_to_compare_and_no_confidence() -> None:
    trace = random_trace(classes=1, samples=300)
    loss = Inconsistency(tolerance=0.5)
    found = calibrate_trace(trace, Promise(loss, 0.9), policy="patience(2, tolerance=0.1)")
    checked = check_promise(replace(trace, labels=None), certificate_of(found, trace))
    assert [one.name for one in checked.shifts] == ["exits"]
    assert checked.shift == NONE


def broken_logits(trace: Trace) -> Trace:
    logits = trace.logits.copy()
    logits[2, 7] = np.nan
    return replace(trace, logits=logits)


def test_two_exits_after_one_layer_are_one_place_to_leave_at() -> None:
    trace = replace(random_trace(samples=600), exit_layers=(1, 2, 3, 4, 6, 6))
    old, new = trace.take(np.arange(300)), trace.take(np.arange(300, 600))
    found = check_promise(new, certified(old, Inconsistency(), 0.9))
    moved = next(one for one in found.shifts if one.name == "exits")
    shares = [np.bincount(np.asarray(one.exit_layers)[one.exits(POLICY)], minlength=7) / 300 for one in (old, new)]
    assert moved.distance == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda trace: replace(trace, data="these"), "calibrated on"),
        (broken_logits, "NaN"),
        (lambda trace: trace.take(np.arange(0)), "no rows"),
        (lambda trace: replace(trace, exit_layers=(1, 2, 3, 4, 5, 7)), "other exits"),
    ],
)
def test_rows_that_are_refused(change: Any, why: str) -> None:
    trace = some(real("sst2"), 100)
    certificate = certified(replace(trace, data="these"), Inconsistency(), 0.02)
    with pytest.raises(OfframpError, match=why):
        check_promise(change(trace), certificate)


def test_other_weights_are_refused() -> None:
    certificate = certified(some(real("sst2"), 100), Inconsistency(), 0.02, model="a")
    check_weights(certificate, "a")
    with pytest.raises(OfframpError, match="other weights"):
        check_weights(certificate, "b")


@pytest.mark.parametrize(
    ("promise", "metric", "written"),
    [
        (Promise(AccuracyGap(), 0.01), "accuracy", "--max-loss 0.01 --confidence 0.95"),
        (Promise(AccuracyGap(), 0.01), "exact", "--max-loss 0.01 --confidence 0.95"),
        (Promise(AccuracyGap(), 0.01), "f1", "--max-loss 0.01 --metric accuracy --confidence 0.95"),
        (Promise(F1Gap(), 0.02, 0.9), "accuracy", "--max-loss 0.02 --metric f1 --confidence 0.9"),
        (Promise(Cost(flops=True), 0.5), "accuracy", "--max-cost 0.5 --flops --confidence 0.95"),
        (Promise(AccuracyGap(), 0.5, 0.9999999), "accuracy", "--max-loss 0.5 --confidence 0.9999999"),
        (
            Promise(Inconsistency("hoeffding", 0.5), 0.01, method="expectation"),
            "spearman",
            "--max-loss 0.01 --consistency --tolerance 0.5 --method expectation --bound hoeffding",
        ),
    ],
)
def test_a_promise_as_the_command_line_takes_it(promise: Promise, metric: str, written: str) -> None:
    assert promise_options(promise, metric) == written


@pytest.mark.parametrize(("rows", "moved", "size"), [(100_000, 0.02, SLIGHT), (100_000, 0.2, MARKED), (60, 0.02, NONE)])
def test_a_small_shift_of_many_rows_is_slight(rows: int, moved: float, size: str) -> None:
    trace = some(real("sst2"), rows)
    policy = certified(some(real("sst2"), 500), Inconsistency(), 0.02)
    exits = np.bincount(exits_of(trace), minlength=6)
    exits[-1] += round(moved * rows)
    exits[0] -= round(moved * rows)
    before = {str(layer): int(count) for layer, count in zip(trace.exit_layers, exits, strict=True)}
    certificate = replace(policy, reference={"exits": before}, data={**policy.data, "rows": rows})
    (found,) = check_promise(trace, certificate).shifts
    assert found.size == size
    assert found.distance == pytest.approx(moved, abs=0.01)


@pytest.mark.parametrize("digits", [None, 2, 1])
@pytest.mark.parametrize(("before", "now"), [(100, 1000), (2000, 500), (3000, 3000)])
def test_confidences_alike_are_seldom_called_moved(before: int, now: int, digits: int | None) -> None:
    """Also where many rows are as sure as each other."""
    draw, trials = np.random.default_rng(0), 400
    alarms = 0
    for _ in range(trials):
        old, new = (0.5 + 0.5 * draw.beta(4, 0.5, size) for size in (before, now))
        if digits:
            old, new = old.round(digits), new.round(digits)
        distance, pvalue = quantiles_moved(np.quantile(old, QUANTILES).round(5).tolist(), before, new)
        assert distance <= stats.ks_2samp(old.round(5), new.round(5), method="asymp").statistic + 1e-9
        alarms += pvalue <= ALLOWED
    assert seldom(alarms, trials, ALLOWED)


@pytest.mark.parametrize("power", [0.7, 1.5])
def test_confidences_that_moved_up_or_down_are_found(power: float) -> None:
    draw = np.random.default_rng(0)
    old, new = draw.beta(4, 2, 2000), draw.beta(4, 2, 2000) ** power
    distance, pvalue = quantiles_moved(np.quantile(old, QUANTILES).round(5).tolist(), 2000, new)
    assert pvalue < 1e-6
    assert distance == pytest.approx(stats.ks_2samp(old, new).statistic, abs=0.02)


def test_windows_on_one_text_count_as_one() -> None:
    counts = np.array([[600, 400], [500, 500]])
    every, half = (counts_moved(counts, np.array([[rows], [rows]])) for rows in (1000, 500))
    assert every[0] == half[0] == pytest.approx(0.1)
    assert half[1] > every[1] > 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=2, max_size=12))
def test_exits_are_merged_until_enough_is_expected(columns: list[tuple[int, int]]) -> None:
    table = np.array(columns, dtype=np.float64).T + np.eye(2, len(columns))  # no row is empty
    found = merged(table)
    np.testing.assert_allclose(found.sum(1), table.sum(1))
    if found.shape[1] > 1:
        expected = np.outer(found.sum(1), found.sum(0)) / found.sum()
        assert (expected >= 5 - 1e-9).all()
    _, pvalue = counts_moved(table.astype(np.int64), table.sum(1, keepdims=True).astype(np.int64))
    assert 0 <= pvalue <= 1
