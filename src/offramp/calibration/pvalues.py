"""Tests of "the risk is too high": a small p-value says that it is not.

Every function here returns a p-value of H₀: E[loss] > limit, from n independent losses: if H₀ is true, it is at most u
with probability at most u. No other assumption is made. Learn-then-Test (Angelopoulos et al., 2021) turns any of them
into a guarantee. Which is tightest depends on what values a loss can have: exact tests for two and three values,
betting for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

BETS = 64
"""Sizes of bets that are mixed."""
IMPLAUSIBLE = 1e-6
"""How improbable a place is where an exact test does not look for its worst case."""
RATES = 33
"""Places at which an exact test looks for its worst case."""
STEPS = 33
"""From the highest limit down to the loss that was seen, in the search for a bound."""
PRECISION = 1e-5
NEGLIGIBLE = 1e-11


def binomial(mean: float, n: int, limit: float) -> float:
    """Losses of 0 and 1. Exact: P(Bin(n, limit) ≤ n · mean)."""
    return float(stats.binom.cdf(round(n * mean), n, limit))


def hoeffding(mean: float, n: int, limit: float) -> float:
    """Losses in [0, 1] (Hoeffding, 1963): exp(−2 n (limit − mean)²)."""
    return float(np.exp(-2 * n * max(limit - mean, 0.0) ** 2))


def hoeffding_bentkus(mean: float, n: int, limit: float) -> float:
    """Losses in [0, 1] (Bates et al., 2021): the smaller of Hoeffding's tight bound and Bentkus's.

    min( exp(−n · kl(mean, limit)),  e · P(Bin(n, limit) ≤ ⌈n · mean⌉) )
    """
    low = min(mean, limit)
    tight = np.exp(-n * relative_entropy(low, limit))
    bentkus = np.e * stats.binom.cdf(np.ceil(round(n * mean, 9)), n, limit)
    return float(min(tight, bentkus, 1.0))


def relative_entropy(a: float, b: float) -> float:
    """kl(a, b) of two coins, in nats."""
    return float(special.rel_entr(a, b) + special.rel_entr(1 - a, 1 - b))


def betting(values: Sequence[float], counts: NDArray[np.int64], limit: float) -> float:
    """Losses of a few values, of which the largest is known: betting against H₀ (Waudby-Smith & Ramdas, 2024).

    Somebody who bets the share b of their money on "smaller than the limit" has, after losses x₁ … xₙ,

        Π (1 + b · (limit − xᵢ)),    0 ≤ b ≤ 1 / (largest − limit)

    times what they began with. Under H₀ nobody wins on average, and neither does somebody who spreads the money
    over many sizes of b. So what that one ends with is more than 1/u with probability at most u. The order does not
    matter: counts are enough.
    """
    return float(np.exp(-money(limit - np.asarray(values), counts)))


def money(gains: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The logarithm of what spreading over bets ends with, or 0 where that is less: (…, k) gains and (k,) counts."""
    most = 1 / np.maximum(-gains.min(-1), NEGLIGIBLE)
    bets = most[..., None] * np.geomspace(1e-3, 1 - 1e-9, BETS)  # (…, BETS)
    logs = np.log1p(bets[..., None] * gains[..., None, :]) @ np.asarray(counts)
    mixed: NDArray[np.float64] = np.logaddexp.reduce(logs, axis=-1) - np.log(BETS)
    return np.maximum(mixed, 0.0)


def paired(worse: int, better: int, n: int, limit: float) -> float:
    """Losses of −1, 0 and 1: how often one answer is wrong where another is right, less how often it is the reverse.

    The exact unconditional test of a difference of paired shares. With D = worse − better and M = worse + better

        Z = (D − n · limit) / √M,      p = max over q of P(Z ≤ z | D/n is limit on average, M/n is q)

    M is binomial, and given M so is `worse`: both are summed exactly. q is looked for where M says that it lies, but
    for an improbable rest, whose probability is added (Berger & Boos, 1994).
    """
    discordant = worse + better
    low = special.betaincinv(discordant, n - discordant + 1, IMPLAUSIBLE / 2) if discordant else 0.0
    high = special.betaincinv(discordant + 1, n - discordant, 1 - IMPLAUSIBLE / 2) if discordant < n else 1.0
    if high < abs(limit):  # fewer answers differ at all than may be worse, or than would have to be better
        return IMPLAUSIBLE if limit > 0 else 1.0
    z = (worse - better - n * limit) / np.sqrt(max(discordant, 1))
    rates = np.linspace(max(low, abs(limit), NEGLIGIBLE), high, RATES)
    worst = max(_tail(rate, n, limit, z) for rate in rates)
    return float(min(1.0, IMPLAUSIBLE + worst))


def _tail(rate: float, n: int, limit: float, z: float) -> float:
    """P(Z ≤ z) where answers differ at this rate and are worse by the limit."""
    reach = 7 * np.sqrt(n * rate * (1 - rate)) + 8
    middle = n * rate
    m = np.arange(max(0, int(middle - reach)), min(n, int(middle + reach)) + 1)
    worst = np.floor((m + n * limit + z * np.sqrt(np.maximum(m, 1)) + 1e-9) / 2)  # most that may be worse of m
    share = min((rate + limit) / (2 * rate), 1.0) if rate else 0.5
    fewer = np.where(worst < 0, 0.0, special.bdtr(np.clip(worst, 0, m), m, share))
    return float(_binomial_mass(m, n, rate) @ fewer) + NEGLIGIBLE


def _binomial_mass(m: NDArray[np.int64], n: int, rate: float) -> NDArray[np.float64]:
    ways = special.gammaln(n + 1) - special.gammaln(m + 1) - special.gammaln(n - m + 1)
    mass: NDArray[np.float64] = np.exp(ways + special.xlogy(m, rate) + special.xlog1py(n - m, -rate))
    return mass


def upper_bound(pvalue: Callable[[float], float], confidence: float, seen: float, high: float) -> float:
    """How far down from `high`, at most to what was seen, every limit is respected with that confidence.

    A p-value need not fall steadily as the limit rises: what counts is where, coming down, it is first too large.
    """
    error = 1 - confidence
    limits = np.linspace(high, min(seen, high), STEPS)
    failed = next((place for place, limit in enumerate(limits) if pvalue(float(limit)) > error), None)
    if failed is None or failed == 0:
        return float(limits[-1] if failed is None else high)
    passes, fails = float(limits[failed - 1]), float(limits[failed])
    while passes - fails > PRECISION:
        middle = (passes + fails) / 2
        passes, fails = (middle, fails) if pvalue(middle) <= error else (passes, middle)
    return passes
