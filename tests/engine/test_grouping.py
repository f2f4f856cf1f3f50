"""Groups hold every row once, and cost no more than any other way of cutting the sorted rows."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.engine import grouping
from offramp.engine.grouping import Cost, groups_of, measure


def price(groups: list[list[int]], lengths: list[int], cost: Cost) -> float:
    return sum(cost(len(group), max(lengths[row] for row in group)) for group in groups)


def cheapest(lengths: list[int], cost: Cost) -> float:
    """Every way to cut the rows, longest first."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    prices = []
    for cuts in range(len(order)):
        for places in combinations(range(1, len(order)), cuts):
            ends = [0, *places, len(order)]
            groups = [order[a:b] for a, b in pairwise(ends)]
            prices.append(price(groups, lengths, cost))
    return min(prices)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    call=st.sampled_from([0.0, 5.0, 40.0, 1e6]),
)
def test_groups_are_the_cheapest(lengths: list[int], call: float) -> None:
    cost = Cost(call, 1.0)
    groups = groups_of(lengths, cost)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    assert price(groups, lengths, cost) == pytest.approx(cheapest(lengths, cost))


def test_a_dear_call_puts_all_together_and_a_cheap_one_none() -> None:
    assert len(groups_of([3, 50, 9, 20], Cost(1e6, 1.0))) == 1
    assert groups_of([3, 50, 9, 20], Cost(0.0, 1.0)) == [[1], [3], [2], [0]]
    assert groups_of([], Cost(1.0, 1.0)) == []


def test_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MOST_TOKENS", 100)
    groups = groups_of([10] * 25 + [300], Cost(1e9, 1.0))
    assert sorted(map(len, groups)) == [1, 5, 10, 10]


def test_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """From times of call + token · size, both come back."""
    now = [0.0]
    monkeypatch.setattr(grouping.time, "perf_counter", lambda: now[0])

    def layer(rows: int, tokens: int) -> None:
        now[0] += 2e-3 + 1e-5 * rows * tokens

    cost = measure(layer)
    assert cost.call == pytest.approx(2e-3, rel=1e-3)
    assert cost.token == pytest.approx(1e-5, rel=1e-3)


def test_a_batch_is_large_enough_once_the_call_costs_little_of_it() -> None:
    cost = Cost(call=0.001, token=0.0001)
    tokens = cost.worth(0.05)
    assert cost.call / cost(1, tokens) == pytest.approx(0.05, rel=0.01)
    assert Cost(0.0, 0.0001).worth() == 0
