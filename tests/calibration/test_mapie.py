"""What MAPIE's risk control offers too: the same p-values, the same points that pass, the same bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from offramp.calibration import pvalues
from offramp.calibration.certify import certify_each
from offramp.calibration.losses import AccuracyGap, Inconsistency
from offramp.evaluation import Trace
from offramp.policies import Entropy
from tests.evaluation.made_traces import random_trace

pytest.importorskip("mapie", reason="MAPIE is not installed")
from mapie.risk_control._base_controller import ltt_procedure
from mapie.risk_control.fwer_control import control_fwer
from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value, get_r_hat_plus

NEAR = 1e-9
PATH = [Entropy(float(threshold)) for threshold in np.linspace(0.02, 0.7, 30)]
rows = st.integers(1, 5000)
limits = st.floats(0.001, 0.999)


def theirs(mean: float, n: int, limit: float, binary: bool = False) -> float:
    return float(compute_hoeffding_bentkus_p_value(np.array([mean]), n, np.array([limit]), binary)[0, 0])


@given(n=rows, share=st.floats(0, 1), limit=limits)
def test_hoeffding_bentkus(n: int, share: float, limit: float) -> None:
    mean = (int(share * (n - 1)) + 0.5) / n  # a mean of losses that are no whole number in all
    assert pvalues.hoeffding_bentkus(mean, n, limit) == pytest.approx(theirs(mean, n, limit), abs=NEAR)


@given(n=rows, share=st.floats(0, 1), limit=limits)
def test_whole_numbers(n: int, share: float, limit: float) -> None:
    """Theirs rounds n · (k / n) up, which floats sometimes put a hair above k."""
    k = int(share * n)
    assume(n * (k / n) == k)
    assert pvalues.hoeffding_bentkus(k / n, n, limit) == pytest.approx(theirs(k / n, n, limit), abs=NEAR)
    tight = np.exp(-n * pvalues.relative_entropy(min(k / n, limit), limit))
    exact = min(tight, pvalues.binomial(k / n, n, limit))
    assert exact == pytest.approx(theirs(k / n, n, limit, binary=True), abs=NEAR)


@given(n=rows, share=st.floats(0, 1), error=st.sampled_from([0.01, 0.05, 0.1, 0.5]))
def test_hoeffding_bounds(n: int, share: float, error: float) -> None:
    """Their bound of plain Hoeffding is where our p-value is the error."""
    losses = np.repeat([0.0, 1.0], [n - int(share * n), int(share * n)])[:, None]
    mean, bound = get_r_hat_plus(losses, np.array([0.5]), "rcps", "hoeffding", error, None)
    assert pvalues.hoeffding(float(mean[0]), n, float(bound[0])) == pytest.approx(error, abs=NEAR)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """Of a power of two of rows: n · (k / n) is k, which they round up."""
    return random_trace(samples=2048)


@pytest.mark.parametrize("method", ["fixed_sequence", "bonferroni"])
@pytest.mark.parametrize("bound", ["exact", "betting", "hoeffding_bentkus"])
@pytest.mark.parametrize("loss", [Inconsistency(), AccuracyGap()], ids=lambda loss: loss.name)
def test_which_points_pass(trace: Trace, loss: Inconsistency | AccuracyGap, bound: str, method: str) -> None:
    loss = replace(loss, bound=bound)
    risks = [loss.risk(loss.observe(trace, trace.exits(policy))) for policy in PATH]
    limit = 0.8 * max(risks)
    levels = [one.level for one in certify_each(PATH, trace, loss, [limit], 0.95, "bonferroni")[0]]
    [tested] = certify_each(PATH, trace, loss, [limit], 0.95, method)
    passed = [place for place, one in enumerate(tested) if one.passes]
    assert 0 < len(passed) < len(PATH)
    assert passed == control_fwer(np.array(levels), 0.05, method).tolist()


@pytest.mark.parametrize("method", ["fixed_sequence", "bonferroni"])
def test_learn_then_test(trace: Trace, method: str) -> None:
    """From risks to points that pass."""
    loss = Inconsistency("hoeffding_bentkus")
    risks = np.array([loss.risk(loss.observe(trace, trace.exits(policy))) for policy in PATH])
    assert (np.diff(risks) >= 0).all()  # else they would not test in this order
    limit = float(np.median(risks))
    found, levels = ltt_procedure(
        risks[None], np.array([[limit]]), 0.05, np.full((1, len(risks)), len(trace)), fwer_method=method
    )
    ours = certify_each(PATH, trace, loss, [limit], 0.95, method)[0]
    assert [place for place, one in enumerate(ours) if one.passes] == list(found[0])
    np.testing.assert_allclose([one.level for one in ours], levels[: len(ours), 0], atol=1e-9)


def test_conformal_risk_control(trace: Trace) -> None:
    """Of losses that grow along the path, the corrected risk is theirs."""
    loss = Inconsistency()
    observed = np.stack([loss.observe(trace, trace.exits(policy)) for policy in PATH], axis=1)
    grown = np.maximum.accumulate(observed, axis=1)
    _, corrected = get_r_hat_plus(grown, np.arange(len(PATH)), "crc", None, None, None)
    ours = certify_each(PATH, trace, loss, [0.999], 0.95, "expectation")[0]
    np.testing.assert_allclose([one.level for one in ours], corrected, atol=NEAR)
