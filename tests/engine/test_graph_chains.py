"""Few rows in CUDA graphs: where links end, who moves when, and that answers do not change by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from offramp.engine.graphs.chains import BOUNDARY, CHAINS, ChainCosts, Chains, Past
from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.sizes import token_sizes
from offramp.engine.graphs.stages import stages_of
from offramp.engine.runner import Packed
from offramp.policies import Confidence, Entropy, Patience, Scripted
from tests.engine.on_device import DEVICE, ROWS, batch_for, check_answers, interrupted_at, needs_device, run, runner
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
    return found.end_of_link(0, TOKENS, found_costs.size(TOKENS), found_costs)


def test_a_first_chain_goes_to_the_end() -> None:
    assert first_link(Past(STAGES), costs(STEEP)) == STAGES


def test_links_end_where_every_chain_of_late_went_on() -> None:
    assert first_link(past([7], [12]), costs(FLAT)) == 6
    assert past([3], *[[12]] * CHAINS, times=1).sure == 12  # the short one is forgotten


def test_who_would_stop_just_before_the_end_goes_on() -> None:
    """Two stages are launched ahead of what is known."""
    assert first_link(past([10], [11]), costs(FLAT)) == STAGES
    assert first_link(past([9], [10]), costs(FLAT)) == 8


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


class FakeSlot:
    """What the device has told, which does nothing before somebody waits for it."""

    def __init__(self, to_do: deque[Callable[[], None]]) -> None:
        self.seen = np.zeros(ROWS * 2, np.int32)
        self.exits = np.zeros(ROWS, int)
        self.expected = self.done = 0
        self._to_do = to_do

    def forget(self, rows: int) -> None:
        self.seen[:rows] = -1

    def wait(self, tick: int) -> None:
        while self.done < tick:
            self._to_do.popleft()()  # raises where nothing comes that one could wait for

    def tell(self, rows: int) -> None:
        self.seen[:rows] = self.exits[:rows]
        self.done += 1

    def read(self, rows: int, count: int) -> tuple[Any, Any]:
        exits = self.seen[:count].copy()
        return exits, exits[None, :, None].astype(np.float32)


class FakePrograms:
    """Rows of which each leaves by the exit that its script says; they know their tickets."""

    exit_layers = tuple(range(1, DEEP + 1))
    stages = stages_of(Entropy(0.1), exit_layers, record=False)
    token_sizes = token_sizes(16384)

    def __init__(self, script: np.ndarray, tokens: np.ndarray) -> None:
        self.script, self.tokens = script, tokens
        self.to_do: deque[Callable[[], None]] = deque()
        self.lanes = [SimpleNamespace(slot=FakeSlot(self.to_do), rows=np.empty(0, int)) for _ in range(3)]
        self.moves: list[tuple[int, int]] = []

    def take_in(self, tickets: np.ndarray) -> None:
        self.reached = self.asked = 0
        self.to_do.append(lambda: self._put(0, tickets))

    def link(self, stages: range, asks: range, size: int, rows: int, lane: int = 0) -> None:
        assert (stages.start, asks.start) == (self.reached, self.asked)  # nothing twice, nothing left out
        assert asks.stop <= stages.stop
        self.reached, self.asked = stages.stop, asks.stop
        self.lanes[lane].slot.expected += len(asks)
        self.to_do.extend(partial(self._ask, exit, size, lane) for exit in asks)

    def gather(self, stage: int, rows: int, lane: int, to: int) -> None:
        assert (stage, stage - 1) == (self.reached, self.asked)
        self.moves.append((lane, to))
        here = self.lanes[lane]
        self.to_do.append(lambda: self._put(to, here.rows[here.slot.exits[: len(here.rows)] < 0]))

    def _put(self, lane: int, tickets: np.ndarray) -> None:
        self.lanes[lane].rows = tickets
        self.lanes[lane].slot.exits[:] = -1

    def _ask(self, exit: int, size: int, lane: int) -> None:
        rows, slot = self.lanes[lane].rows, self.lanes[lane].slot
        assert size >= self.tokens[rows].sum()
        here = slot.exits[: len(rows)]
        here[(self.script[rows] <= exit) & (here < 0)] = exit
        slot.tell(len(rows))


@pytest.mark.parametrize("kind", [ChainCosts, Eager])
@pytest.mark.parametrize("seed", range(6))
def test_every_row_is_answered_once_wherever_rows_move(seed: int, kind: type[ChainCosts]) -> None:
    draw = np.random.default_rng(seed)
    total = 40 * 32
    script = np.clip(draw.normal(9 + seed, 6, total).round(), 0, DEEP - 1).astype(int)
    tokens = draw.integers(4, 60, total)
    programs: Any = FakePrograms(script, tokens)
    chains = Chains(programs, Costs(STEEP, asking=40e-6, moving=8e-6))
    chains.costs.__class__ = kind
    for first in range(0, total, 32):
        tickets = np.arange(first, first + int(draw.integers(1, 33)))
        batch = Packed(tickets, tokens[tickets], np.zeros(tokens[tickets].sum(), int))
        programs.take_in(tickets)
        filled: list[int] = []
        finished = chains.run(batch, chains.costs.size(len(batch.input_ids)), partial(filled.append, first))
        np.testing.assert_array_equal(finished.tickets, tickets)
        np.testing.assert_array_equal(finished.exits, script[tickets])
        np.testing.assert_array_equal(np.ravel(finished.logits), script[tickets])
        assert filled == [first]
    assert kind is ChainCosts or {(0, 1), (1, 2), (2, 1)} <= set(programs.moves)


def eager(policy: Any, dtype: torch.dtype = torch.float32) -> tuple[Any, Any, list[tuple[int, int]]]:
    """A model, an engine whose rows move as often as they can, and from which lane to which they did."""
    torch.manual_seed(3)
    model = tiny_model(layers=LAYERS).to(DEVICE, dtype)
    engine = runner(model, policy, dtype=dtype, together=False)
    engine.few = 10**6
    engine.chains.costs.__class__ = Eager
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
