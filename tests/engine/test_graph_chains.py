"""Few rows in CUDA graphs: where links end, who moves when, and that answers do not change by it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from offramp.engine.graphs.chains import BOUNDARY, CHAINS, ChainCosts, Chains, Past
from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.memory import Slot
from offramp.engine.graphs.sizes import token_sizes
from offramp.engine.runner import Packed
from offramp.policies import Confidence, Entropy, Patience, Scripted
from tests.engine.on_device import DEVICE, ROWS, batch_for, check_answers, interrupted_at, needs_device, run, runner
from tests.engine.simulated_device import SimulatedDevice
from tests.tiny import tiny_model

STAGES = 12
LAYERS, DEEP = 12, 24
FLAT = {64: 30e-6, 16384: 30e-6}
STEEP = {64: 30e-6, 256: 40e-6, 1024: 70e-6, 16384: 500e-6}
LENGTHS = np.full(32, 26)
TOKENS = int(LENGTHS.sum())


def costs(stages: dict[int, float], moving: float = 8e-6) -> ChainCosts:
    return ChainCosts(Costs(stages, asking=40e-6, moving=moving), token_sizes(16384))


def past(*chains: list[int], times: int = 9) -> Past:
    """Of chains of 32 rows, from the decisions at which their rows left."""
    found = Past(STAGES)
    for left_at in chains * times:
        rows = np.resize(left_at, len(LENGTHS))
        found.note(int(rows.max()), rows, LENGTHS)
    return found


def first_link(found: Past, found_costs: ChainCosts) -> int:
    return found.end_of_link(0, TOKENS, found_costs.bucket(TOKENS), found_costs)


def test_a_first_chain_goes_to_the_end() -> None:
    assert first_link(Past(STAGES), costs(STEEP)) == STAGES


def test_links_end_where_every_chain_of_late_went_on() -> None:
    assert first_link(past([7], [12]), costs(FLAT)) == 6
    assert past([3], *[[12]] * CHAINS, times=1).sure == 12  # the short one is forgotten


def test_who_would_stop_just_before_the_end_goes_on() -> None:
    """Two stages are launched ahead of what is known."""
    assert first_link(past([10], [11]), costs(FLAT)) == STAGES
    assert first_link(past([9], [10]), costs(FLAT)) == 9


def test_links_end_where_half_have_left_if_smaller_buckets_are_faster() -> None:
    most_leave_early = past([3, 3, 3, 12])
    assert first_link(most_leave_early, costs(STEEP)) == 6  # two stages after it is known
    assert first_link(past([3, 3, 3, 12]), costs(FLAT)) == STAGES
    assert first_link(past([3, 3, 3, 12]), costs(STEEP, moving=1e-3)) == STAGES
    assert first_link(past([11, 12]), costs(STEEP)) == STAGES  # who moves after eleven stages saves nothing


def test_what_moving_saves() -> None:
    steep = costs(STEEP)
    assert steep.saved(1024, 256, stages=6) == pytest.approx(6 * 30e-6 - 8e-6 - BOUNDARY)
    assert steep.saved(1024, 1024, stages=6) < 0
    assert steep.saved(1024, 64, stages=-2) < 0


class Eager(ChainCosts):
    """Moves wherever the bucket gets smaller."""

    def saved(self, size: int, smaller: int, stages: float) -> float:
        return 1.0 if smaller < size else -1.0


@pytest.mark.parametrize(("kind", "stages"), [(ChainCosts, FLAT), (ChainCosts, STEEP), (Eager, STEEP)])
@pytest.mark.parametrize(
    ("labels", "most_rows", "ahead"),
    [(1, 32, 0), (3, 32, 12), (16, 32, 60), (6, 300, 0), (6, 300, 40), (2, 3, 5)],
)
@pytest.mark.parametrize("mean", [1, 9, 14])
def test_every_row_gets_its_answer_whatever_the_host_sees_when(
    kind: type[ChainCosts], stages: dict[int, float], labels: int, most_rows: int, ahead: int, mean: int
) -> None:
    """Batches follow each other at once, few rows after many: what is under way must not be taken for an answer."""
    draw = np.random.default_rng(mean)
    total = 30 * most_rows
    script = np.clip(draw.normal(mean, 6, total).round(), 0, DEEP - 1).astype(int)
    tokens = draw.integers(4, 30, total)
    device: Any = SimulatedDevice(script, tokens, DEEP, labels, ahead)
    measured = Costs(stages, asking=40e-6, moving=8e-6)
    chains = Chains(device, measured)
    chains.costs = kind(measured, device.token_sizes)
    for first in range(0, total, most_rows):
        tickets = np.arange(first, first + int(draw.integers(1, most_rows + 1)))
        batch = Packed(tickets, tokens[tickets], np.zeros(tokens[tickets].sum(), int))
        filled: list[int] = []
        finished = chains.run(batch, device.take_in(tickets), partial(filled.append, first))
        np.testing.assert_array_equal(finished.tickets, tickets)
        np.testing.assert_array_equal(finished.exits, script[tickets])
        np.testing.assert_array_equal(np.stack(finished.logits), script[tickets, None] + 100 * np.arange(labels))
        assert filled == [first]
    assert kind is ChainCosts or most_rows < 32 or mean != 9 or {(0, 1), (1, 2), (2, 1)} <= set(device.moves)


def test_decisions_are_counted_beyond_what_the_device_can() -> None:
    slot = Slot(2, 1, 64, torch.device("cpu"))
    for seen, tick in ((5, 5), (6, 5), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31), (-(2**31), 2**31 - 1), (0, 2**32)):
        slot.seen_ticks[0] = seen
        assert slot.has(tick)
        assert not slot.has(tick + 2)


def eager(policy: Any, dtype: torch.dtype = torch.float32) -> tuple[Any, Any, list[tuple[int, int]]]:
    """A model, an engine whose rows move as often as they can, and from which lane to which they did."""
    torch.manual_seed(3)
    model = tiny_model(layers=LAYERS).to(DEVICE, dtype)
    engine = runner(model, policy, dtype=dtype, together=False)
    engine.few = 10**6
    engine.chains.costs = Eager(engine.costs, engine.programs.token_sizes)
    moves: list[tuple[int, int]] = []
    gather = engine.programs.gather

    def noted(stage: int, rows: int, lane: int, to: int) -> None:
        moves.append((lane, to))
        gather(stage, rows, lane, to)

    engine.programs.gather = noted
    return model, engine, moves


@needs_device
@pytest.mark.parametrize(
    "policy",
    [
        Entropy(0.4),
        Patience(2) & Confidence(0.5),
        Patience(1),
        Scripted(tuple(1 + row * 7 % LAYERS for row in range(ROWS))),
        Scripted(tuple(LAYERS if row % 9 == 0 else 1 + row % 3 for row in range(ROWS))),
    ],
    ids=str,
)
def test_answers_are_the_same_wherever_rows_move(policy: Any) -> None:
    model, engine, moves = eager(policy)
    for split in ((ROWS,), (20, 40), (5,) * 12, (ROWS,)):
        check_answers(engine, model, policy, batch_for("bert"), split)
    assert not isinstance(policy, Scripted) or (0, 1) in moves


@needs_device
def test_bits_are_the_same_wherever_rows_move() -> None:
    policy = Scripted(tuple(1 + row * 7 % LAYERS for row in range(ROWS)))
    _, engine, moves = eager(policy, torch.bfloat16)
    exits, logits = run(engine, batch_for("bert"))
    assert moves
    engine.few = 0  # from pool to pool
    for found, expected in zip(run(engine, batch_for("bert")), (exits, logits), strict=True):
        np.testing.assert_array_equal(found, expected)


@needs_device
@pytest.mark.parametrize("wait", range(1, 9, 2))
def test_an_interrupt_between_lanes_leaves_nothing_behind(wait: int) -> None:
    policy = Scripted(tuple(1 + row * 7 % LAYERS for row in range(ROWS)))
    model, engine, _ = eager(policy)
    check_answers(engine, model, policy, batch_for("bert"), (ROWS,))
    with interrupted_at(wait), pytest.raises(KeyboardInterrupt):
        run(engine, batch_for("bert"))
    engine.drop()
    check_answers(engine, model, policy, batch_for("bert"), (20, 40))
