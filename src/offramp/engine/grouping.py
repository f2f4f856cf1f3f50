"""Which rows to pad to one length and run together: measured, not guessed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

PROBES = ((1, 16), (1, 64), (8, 16), (8, 64), (32, 32))
"""(rows, tokens) at which a layer is timed."""
MOST_TOKENS = 8192
"""In one group, padding included: beyond, nothing is gained and memory grows."""


@dataclass(frozen=True)
class Cost:
    """Seconds that a layer takes for a batch: call + token · (rows · tokens)."""

    call: float
    token: float

    def __call__(self, rows: int, tokens: int) -> float:
        return self.call + self.token * rows * tokens

    def worth(self, share: float = 0.05) -> int:
        """Tokens of a batch whose call costs no more than this share: a larger one gains nothing, but is waited for."""
        return int(self.call * (1 - share) / (share * self.token))


def measure(layer: Callable[[int, int], object], repeats: int = 3) -> Cost:
    """The cost of a layer, timed at a few sizes; `layer` runs it on so many rows of so many tokens."""
    sizes, seconds = [], []
    for rows, tokens in PROBES:
        layer(rows, tokens)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            layer(rows, tokens)
            times.append(time.perf_counter() - started)
        sizes.append(rows * tokens)
        seconds.append(min(times))
    # Least squares on relative errors: the small sizes count as much as the large.
    weights = 1 / np.array(seconds)
    design = np.stack([np.ones(len(sizes)), np.array(sizes, float)], 1) * weights[:, None]
    call, token = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)[0]
    return Cost(max(float(call), 0.0), max(float(token), 1e-12))


def groups_of(lengths: Sequence[int], cost: Cost) -> list[list[int]]:
    """Split rows into groups so that padding each group to its longest row costs least in all.

    Rows are taken longest first. best[j] is the least cost of the first j of them, and begins[j] is where the last
    group among them starts.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    longest = np.asarray(lengths, float)[order]
    best, begins = np.zeros(len(order) + 1), np.zeros(len(order) + 1, int)
    first = 0  # no group that starts before it can be the best one any more
    for end in range(1, len(order) + 1):
        tokens = np.arange(end - first, 0, -1) * longest[first:end]  # of a group from each start to `end`
        costs = best[first:end] + cost.call + cost.token * tokens
        costs[:-1][tokens[:-1] > MOST_TOKENS] = np.inf
        begins[end] = first + int(costs.argmin())
        best[end] = costs[begins[end] - first]
        # A row padded at more than the price of a call of its own: so will be every shorter one.
        while first < end - 1 and cost.token * (longest[first] - longest[end - 1]) > cost.call:
            first += 1
    groups, end = [], len(order)
    while end:
        groups.append(order[begins[end] : end].tolist())
        end = int(begins[end])
    return groups[::-1]
