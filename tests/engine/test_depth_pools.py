"""Depth pools: rows at the same depth run together whenever they came, and each gets the engine's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.engine.depth_pools import PATIENCE, DepthPools
from offramp.engine.runner import Finished
from offramp.engine.waves import Route, has_one_layer
from offramp.policies import Fixed
from tests.engine.rows_in_company import (
    FAMILIES,
    POLICIES,
    Watched,
    check,
    layers_of,
    route_of,
)
from tests.engine.test_rows import ROWS
from tests.exiting_models import MODELS
from tests.policies.matrix import SAMPLES


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pools_of(family: str, most_tokens: int = 4096, **settings: Any) -> DepthPools:
    return DepthPools(layers_of(family), has_one_layer(MODELS[family, "classification"]), most_tokens, **settings)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_pools_answer_as_the_engine_does(family: str, data: st.DataObject) -> None:
    """Whatever comes between which steps, under whichever policies, in batches of any size, after any pauses."""
    clock = Clock()
    pools = pools_of(family, data.draw(st.sampled_from([1, 20, 60, 4096])), clock=clock)
    asked: dict[int, tuple[str, int]] = {}
    found: dict[int, tuple[int, Any]] = {}

    def take(finished: Sequence[Finished]) -> None:
        for part in finished:
            for ticket, exit, logits in zip(part.tickets.tolist(), part.exits.tolist(), part.logits, strict=True):
                assert ticket not in found
                found[ticket] = exit, logits

    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(0, 6))):
            policy, number = data.draw(st.sampled_from(POLICIES)), data.draw(st.integers(0, SAMPLES - 1))
            asked[len(asked)] = policy, number
            pools.add(len(asked) - 1, ROWS[number], route_of(family, policy))
        clock.now += data.draw(st.sampled_from([0.0, 2 * PATIENCE]))
        for _ in range(data.draw(st.integers(0, 4))):
            if pools:
                take(pools.step())
    while pools:
        take(pools.step())
    check(family, "torch", asked, found)


def test_rows_at_the_same_depth_run_together_whenever_they_came() -> None:
    seen: list[tuple[int, int]] = []
    layers = Watched(layers_of("bert"), lambda index, hidden: seen.append((index, len(hidden))))
    pools = DepthPools(layers, False, 4096, clock=Clock())
    full = Route(MODELS["bert", "classification"], Fixed(5))
    for ticket in range(2):
        pools.add(ticket, ROWS[ticket], full)
    pools.step()
    for ticket in range(2, 7):
        pools.add(ticket, ROWS[ticket], full)
    while pools:
        pools.step()
    # Two wait after the first layer; five come, are more, and go first; then all seven go on together.
    assert seen == [(0, 2), (0, 5), (1, 7), (2, 7), (3, 7), (4, 7)]


def test_rows_of_different_policies_share_a_layer() -> None:
    seen: list[int] = []
    layers = Watched(layers_of("bert"), lambda index, hidden: seen.append(len(hidden)))
    pools = DepthPools(layers, False, 4096, clock=Clock())
    for ticket, name in enumerate(POLICIES[:6]):
        pools.add(ticket, ROWS[0], route_of("bert", name))
    pools.step()
    assert seen == [6]


def test_who_was_passed_over_for_too_long_goes_next() -> None:
    clock, seen = Clock(), []
    layers = Watched(layers_of("bert"), lambda index, hidden: seen.append((index, len(hidden))))
    pools = DepthPools(layers, False, 4096, clock=clock)
    full = Route(MODELS["bert", "classification"], Fixed(5))
    pools.add(0, ROWS[0], full)
    pools.step()
    for ticket in range(1, 4):
        pools.add(ticket, ROWS[0], full)
    clock.now += 2 * PATIENCE
    pools.add(4, ROWS[0], full)
    pools.step()
    assert seen[-1] == (1, 1), "the row that has waited longest is one layer ahead of the four that are more"


def test_all_depths_are_one_batch_where_all_layers_are_the_same() -> None:
    seen: list[int] = []
    layers = Watched(layers_of("albert"), lambda index, hidden: seen.append(len(hidden)))
    pools = DepthPools(layers, True, 4096, clock=Clock())
    full = Route(MODELS["albert", "classification"], Fixed(5))
    for ticket in range(4):
        pools.add(ticket, ROWS[ticket], full)
        pools.step()
    assert seen == [1, 2, 3, 4]


def test_a_batch_holds_no_more_tokens_than_allowed() -> None:
    for family in FAMILIES:
        most = 2 * max(map(len, ROWS))
        tokens: list[int] = []
        layers = Watched(layers_of(family), lambda _, hidden, to=tokens: to.append(sum(map(len, hidden))))
        pools = DepthPools(layers, family == "albert", most)
        for ticket in range(40):
            pools.add(ticket, ROWS[ticket % SAMPLES], route_of(family, POLICIES[ticket % 3]))
        while pools:
            pools.step()
        assert max(tokens) <= most
        assert max(tokens) > most / 2
