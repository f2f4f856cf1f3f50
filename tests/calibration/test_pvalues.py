"""P-values at the edge: where the risk is the limit itself, one of at most u comes with probability at most u."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from calibration_populations import VALUES
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from offramp.calibration import pvalues
from offramp.calibration.losses import F1Gap, Inconsistency

LEVELS = (0.01, 0.05, 0.1)
ROUNDING = 1e-9
TESTS_OF_MEANS = {
    "binomial": pvalues.binomial,
    "hoeffding": pvalues.hoeffding,
    "hoeffding_bentkus": pvalues.hoeffding_bentkus,
    "betting": lambda mean, n, limit: pvalues.betting([0, 1], np.array([n - round(n * mean), round(n * mean)]), limit),
}


@pytest.mark.parametrize("limit", [0.005, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("n", [1, 20, 200, 1000])
@pytest.mark.parametrize("name", TESTS_OF_MEANS)
def test_losses_of_two_values(name: str, n: int, limit: float) -> None:
    seen = np.arange(n + 1)
    p = np.array([TESTS_OF_MEANS[name](k / n, n, limit) for k in seen])
    probability = stats.binom.pmf(seen, n, limit)
    for u in LEVELS:
        assert probability[p <= u].sum() <= u + ROUNDING


def test_a_test_that_is_none_is_found_out() -> None:
    """The same check, of the p-value of a normal distribution, which rows are not."""
    n, limit = 200, 0.01
    seen = np.arange(n + 1)
    p = stats.norm.cdf((seen / n - limit) / np.sqrt(limit * (1 - limit) / n))
    assert any(stats.binom.pmf(seen, n, limit)[p <= u].sum() > u + ROUNDING for u in LEVELS)


@cache
def pairs(n: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Every (worse, better) of n, and in how many ways each comes about (its logarithm)."""
    worse, better = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij"))
    possible = worse + better <= n
    worse, better = worse[possible], better[possible]
    same = n - worse - better
    return worse, better, special.gammaln(n + 1) - sum(special.gammaln(part + 1) for part in (worse, better, same))


def level(p: NDArray[np.float64], u: float, n: int, limit: float, rate: float) -> float:
    """P(p ≤ u) where answers differ at this rate and are worse by the limit."""
    worse, better, ways = pairs(n)
    some = p <= u
    worse, better, ways = worse[some], better[some], ways[some]
    shares = (rate + limit) / 2, (rate - limit) / 2, max(1 - rate, 0.0)
    parts = zip((worse, better, n - worse - better), shares, strict=True)
    return float(np.exp(ways + sum(special.xlogy(count, share) for count, share in parts)).sum())


def three_values(worse: int, better: int, n: int, limit: float) -> float:
    return pvalues.betting([-1, 0, 1], np.array([better, n - worse - better, worse]), limit)


@pytest.mark.parametrize("test", [pvalues.paired, three_values])
@pytest.mark.parametrize(
    ("n", "limit"),
    [(1, 0.05), (20, 0.05), (40, 0.02), (30, 0.1), pytest.param(200, 0.01, marks=pytest.mark.slow)],
)
def test_losses_of_three_values(test: Callable[..., float], n: int, limit: float) -> None:
    """At every rate of answers that differ, also between those at which the exact test looks for its worst case."""
    worse, better, _ = pairs(n)
    p = np.array([test(int(w), int(b), n, limit) for w, b in zip(worse, better, strict=True)])
    for rate in np.geomspace(limit, 1, 150):
        for u in LEVELS:
            assert level(p, u, n, limit, float(rate)) <= u * (1 + 1e-3)


def test_the_exact_test_of_pairs_is_no_weaker_than_it_must_be() -> None:
    worse, better, _ = pairs(40)
    p = np.array([pvalues.paired(int(w), int(b), 40, 0.05) for w, b in zip(worse, better, strict=True)])
    assert max(level(p, 0.05, 40, 0.05, rate) for rate in np.linspace(0.05, 1, 50)) > 0.04


@pytest.mark.parametrize("shape", [(0.02, 0.38), (0.5, 9.5), (5, 95)], ids=str)
@pytest.mark.parametrize("name", ["hoeffding", "hoeffding_bentkus", "betting"])
def test_losses_of_any_value(name: str, shape: tuple[float, float]) -> None:
    """Of means that are the limit, 0.05, whatever they vary."""
    draw, n, limit, times = np.random.default_rng(0), 150, 0.05, 1000
    losses = draw.beta(*shape, (times, n))
    if name == "betting":
        p = np.array([pvalues.betting([*row, 1.0], np.append(np.ones(n, int), 0), limit) for row in losses])
    else:
        p = np.array([TESTS_OF_MEANS[name](row.mean(), n, limit) for row in losses])
    for u in LEVELS:
        assert (p <= u).sum() <= stats.binom.ppf(0.9999, times, u)


@pytest.mark.parametrize("n", [200, 1000])
def test_the_loss_of_f1(n: int) -> None:
    """Cells of (y, f, a) of which F1 loses just the limit."""
    limit, times = 0.05, 200
    shares = np.array([0.45, 0, 0, 0.05, 0.05, 0, 0, 0.45])  # y, f, a: both are right, or both are wrong
    moved = special.expit(-2.5)
    for _ in range(60):  # ones that are lost, until F1 is
        now = shares + moved * np.array([0, 0, 0, 0, 0, 0, 1, -1])
        lost = 0.9 - 2 * now[7] / (now[[4, 5, 6, 7]].sum() + now[[1, 3, 5, 7]].sum())
        moved *= limit / lost
    draw = np.random.default_rng(0)
    p = np.array([F1Gap().pvalue(np.repeat(VALUES["f1"], draw.multinomial(n, now)), limit) for _ in range(times)])
    for u in LEVELS:
        assert (p <= u).sum() <= stats.binom.ppf(0.9999, times, u)


counts = st.integers(0, 60)


@settings(max_examples=50, deadline=None)
@given(worse=counts, better=counts, same=st.integers(1, 400), limits=st.tuples(*2 * [st.floats(-0.99, 0.99)]))
def test_pairs_far_from_what_is_usual(worse: int, better: int, same: int, limits: tuple[float, float]) -> None:
    """Limits below zero are asked for by bounds."""
    n = worse + better + same
    low, high = sorted(limits)
    tight, loose = (pvalues.paired(worse, better, n, limit) for limit in (low, high))
    assert 0 < loose <= 1
    assert 0 < tight <= 1
    if (worse - better) / n > high:
        assert loose > 0.2


@settings(deadline=None)
@given(worse=counts, same=st.integers(1, 400), confidence=st.sampled_from([0.9, 0.95, 0.999]))
def test_bounds_are_where_the_p_value_falls(worse: int, same: int, confidence: float) -> None:
    observed = np.repeat([0.0, 1.0], [same, worse])
    bound = Inconsistency().upper_bound(observed, confidence)
    assert Inconsistency().risk(observed) < bound <= 1
    assert bound > 0.999 or Inconsistency().pvalue(observed, bound + 1e-4) <= 1 - confidence
    assert Inconsistency().pvalue(observed, bound - 1e-4) > 1 - confidence
