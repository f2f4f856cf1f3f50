"""Few rows in CUDA graphs: where links end, who moves when, and that answers do not change by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from offramp.engine.graphs.chains import BOUNDARY, CHAINS, ChainCosts, Chains, Past, some_of
from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.memory import Slot
from offramp.engine.graphs.sizes import token_sizes
from offramp.engine.graphs.stages import Move
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


def planned(found: Past, found_costs: ChainCosts) -> tuple[Move, ...]:
    return found.moves(found_costs.bucket(TOKENS), found_costs)


def test_a_first_chain_goes_to_the_end_and_nobody_moves() -> None:
    assert Past(STAGES).end_of_link(2) == STAGES
    assert planned(Past(STAGES), costs(STEEP)) == ()


def test_links_end_where_every_chain_of_late_went_on() -> None:
    assert past([7], [12]).end_of_link(2) == 6
    assert past([7], [12]).end_of_link(6) == 7
    assert past([3], *[[12]] * CHAINS, times=1).sure == 12  # the short one is forgotten


def test_who_would_stop_just_before_the_end_goes_on() -> None:
    """Two stages are launched ahead of what is known."""
    assert past([10], [11]).end_of_link(2) == STAGES
    assert past([9], [10]).end_of_link(2) == 9


def test_rows_move_where_many_have_left_if_smaller_buckets_are_faster() -> None:
    """To where all of those fit who stayed in chains before; shares are rounded up to eighths."""
    few_stay = [3, 3, 3, 12]
    assert planned(past(few_stay), costs(STEEP)) == ((6, 256),)  # a quarter of 896; the device knows it at the fourth
    assert planned(past([2, 2, 2, 12]), costs(STEEP)) == ((3, 256),)
    assert planned(past([2, 2, 5, 5, 5, 5, 5, 12]), costs(STEEP)) == ((6, 128),)
    assert planned(past([2, 2, 2, 2, 8, 8, 8, 12]), costs(STEEP, moving=1e-6)) == ((3, 512), (9, 128))
    for slow in (costs(FLAT), costs(STEEP, moving=1e-3)):
        assert planned(past(few_stay), slow) == ()
    assert planned(past([11, 12]), costs(STEEP)) == ()  # who moves after eleven stages saves nothing


def test_there_is_room_for_more_than_usually_stay() -> None:
    half, more = [3, 12], [3, 3, 12, 12, 12]
    (steady,) = planned(past(half), costs(STEEP))
    (unsteady,) = planned(past(half, half, half, more), costs(STEEP))
    assert (steady.size, unsteady.size) == (512, 640)  # 0.52 and three times 0.04 are five eighths of 896


def test_what_moving_saves() -> None:
    steep = costs(STEEP)
    assert steep.saved(1024, 256, stages=6) == pytest.approx(6 * 30e-6 - 8e-6 - BOUNDARY)
    assert steep.saved(1024, 1024, stages=6) < 0
    assert steep.saved(1024, 64, stages=-2) < 0


class Eager(ChainCosts):
    """Moves wherever the bucket gets smaller."""

    def saved(self, size: int, smaller: int, stages: float) -> float:
        return 1.0


@pytest.mark.parametrize(("kind", "stages"), [(ChainCosts, FLAT), (ChainCosts, STEEP), (Eager, STEEP)])
@pytest.mark.parametrize(
    ("labels", "most_rows", "ahead"),
    [(1, 32, 0), (3, 32, 12), (16, 32, 60), (6, 300, 0), (6, 300, 40), (2, 3, 5)],
)
@pytest.mark.parametrize("mean", [1, 9, 14])
def test_every_row_gets_its_answer_whatever_the_host_sees_when(
    kind: type[ChainCosts], stages: dict[int, float], labels: int, most_rows: int, ahead: int, mean: int
) -> None:
    """Batches follow each other at once, few rows after many: what is under way must not be taken for an answer.

    Now and then many more rows stay than ever before, and do not fit.
    """
    draw = np.random.default_rng(mean)
    batches = 30
    total = batches * most_rows
    script = np.clip(draw.normal(mean, 6, total).round(), 0, DEEP - 1).astype(int)
    script[-total // 10 :] = DEEP - 2
    tokens = draw.integers(4, 30, total)
    device: Any = SimulatedDevice(script, tokens, DEEP, labels, ahead)
    measured = Costs(stages, asking=40e-6, moving=8e-6)
    chains = Chains(device, measured)
    chains.costs = kind(measured, device.token_sizes)
    for first in range(0, total, most_rows):
        tickets = np.arange(first, first + int(draw.integers(1, most_rows + 1)))
        batch = Packed(tickets, tokens[tickets], np.zeros(tokens[tickets].sum(), int))
        known: list[int] = []
        finished = chains.run(batch, lambda rows: device.take_in(rows.tickets), known.extend)
        np.testing.assert_array_equal(finished.tickets, tickets)
        np.testing.assert_array_equal(finished.exits, script[tickets])
        np.testing.assert_array_equal(np.stack(finished.logits), script[tickets, None] + 100 * np.arange(labels))
        assert known[: len(tickets)] == tickets.tolist()
    moved = kind is Eager and most_rows >= 32 and mean == 9
    assert not moved or (set(device.moves) == {(0, 1), (1, 2)} and device.taken_in > batches)


def test_some_rows_of_a_batch() -> None:
    batch = Packed(np.array([7, 8, 9]), np.array([2, 1, 3]), np.array([1, 2, 3, 4, 5, 6]), np.array([0, 1, 0, 0, 0, 1]))
    found = some_of(batch, np.array([0, 2]))
    assert (found.tickets.tolist(), found.lengths.tolist()) == ([7, 9], [2, 3])
    assert found.input_ids.tolist() == [1, 2, 4, 5, 6]
    assert found.token_type_ids is not None
    assert found.token_type_ids.tolist() == [0, 1, 0, 0, 1]


def test_decisions_are_counted_beyond_what_the_device_can() -> None:
    slot = Slot(2, 1, 64, torch.device("cpu"))
    for seen, tick in ((5, 5), (6, 5), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31), (-(2**31), 2**31 - 1), (0, 2**32)):
        slot.seen_ticks[0] = seen
        assert slot.has(tick)
        assert not slot.has(tick + 2)


def mover(
    policy: Any, dtype: torch.dtype = torch.float32, labels: int = 3, broken_word: int | None = None
) -> tuple[Any, Any, list[tuple[int, int]]]:
    """A model, an engine that takes all rows as one batch and moves them as often as it can, and between which lanes.

    How many will stay is known after a few batches.
    """
    torch.manual_seed(3)
    model = tiny_model(layers=LAYERS, num_labels=labels).to(DEVICE, dtype)
    if broken_word is not None:
        with torch.no_grad():
            model.backbone.model.embeddings.word_embeddings.weight[broken_word] = torch.nan
    engine = runner(model, policy, dtype=dtype, together=False, budget=2048)
    engine.few = 10**6
    engine.chains.costs = Eager(engine.costs, engine.programs.token_sizes)
    moves: list[tuple[int, int]] = []
    gather = engine.programs.gather

    def noted(move: Move, rows: int, lane: int, to: int) -> None:
        moves.append((lane, to))
        gather(move, rows, lane, to)

    engine.programs.gather = noted
    return model, engine, moves


SCRIPT = Scripted(tuple(1 + row * 7 % LAYERS for row in range(ROWS)))


@needs_device
@pytest.mark.parametrize(
    "policy",
    [
        Entropy(0.4),
        Patience(2) & Confidence(0.5),
        Patience(1),
        SCRIPT,
        Scripted(tuple(LAYERS if row % 9 == 0 else 1 + row % 3 for row in range(ROWS))),
    ],
    ids=str,
)
def test_answers_are_the_same_wherever_rows_move(policy: Any) -> None:
    model, engine, moves = mover(policy)
    for split in ((ROWS,),) * 12 + ((20, 40), (5,) * 12, (ROWS,)):
        check_answers(engine, model, policy, batch_for("bert"), split)
    assert not isinstance(policy, Scripted) or {(0, 1), (1, 2)} <= set(moves)


@needs_device
def test_bits_are_the_same_wherever_rows_move() -> None:
    _, engine, moves = mover(SCRIPT, torch.bfloat16)
    for _ in range(12):
        exits, logits = run(engine, batch_for("bert"))
    assert {(0, 1), (1, 2)} <= set(moves)
    engine.few = 0  # from pool to pool
    for found, expected in zip(run(engine, batch_for("bert")), (exits, logits), strict=True):
        np.testing.assert_array_equal(found, expected)


@needs_device
@pytest.mark.parametrize("labels", [3, 20], ids=["told", "copied"])
def test_who_does_not_fit_is_run_again(labels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are not finite move with the others, or stay behind."""
    monkeypatch.setattr(Past, "moves", lambda *_: (Move(3, 384), Move(6, 128)))
    model, engine, moves = mover(SCRIPT, labels=labels, broken_word=4)
    assert engine.programs.lanes[0].slot.is_told(64) == (labels == 3)
    batch = batch_for("bert")
    ids = batch["input_ids"]
    ids[ids == 4] = 5
    expected = model.answer(SCRIPT, **batch).logits.cpu().numpy()
    broken = np.arange(ROWS) % 10 == 3
    ids[broken, 0] = 4
    for _ in range(4):
        exits, logits = run(engine, batch)
        np.testing.assert_array_equal(exits + 1, SCRIPT.layers)
        np.testing.assert_allclose(logits[~broken], expected[~broken], atol=2e-4)
        assert np.isnan(logits[broken]).all()
    assert {(0, 1), (1, 2)} <= set(moves)


@needs_device
@pytest.mark.parametrize("wait", range(1, 13))
def test_an_interrupt_between_lanes_leaves_nothing_behind(wait: int) -> None:
    model, engine, moves = mover(SCRIPT)
    for _ in range(10):
        check_answers(engine, model, SCRIPT, batch_for("bert"), (ROWS,))
    assert (0, 1) in moves
    with interrupted_at(wait), pytest.raises(KeyboardInterrupt):
        run(engine, batch_for("bert"))
    engine.drop()
    check_answers(engine, model, SCRIPT, batch_for("bert"), (20, 40))
