"""Few rows: they stay together while exits are asked, and move to a smaller bucket where that pays."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.memory import LANES
from offramp.engine.graphs.sizes import ROWS, fitting
from offramp.engine.graphs.stages import START, Move
from offramp.engine.runner import NO_EXIT, Finished, Packed

if TYPE_CHECKING:
    from offramp.engine.graphs.programs import Programs

CHAINS = 8
"""How many chains are looked back on, to see how far the next will go."""
SHARES = 16
"""How many are looked back on, to see how many rows will stay."""
SPREAD = 3.0
"""Standard deviations above the mean of these: hardly ever do more stay."""
PARTS = 8
"""Of a whole, to which shares are rounded up: few kinds of links, for each is captured once."""
EVERY = 3
"""A link ends at a stage that this divides, or has one stage alone: few kinds, too."""
FINE = 1024
"""Tokens, up to which there are many buckets to move to."""
FEWEST_TO_MOVE = 4
"""Rows: of fewer nobody knows how many will stay."""
BOUNDARY = 5e-6
"""Seconds that another link costs."""
AHEAD = 2
"""Stages that are launched before the host knows who has left: it takes longer than one to see, and to launch."""


class ChainCosts:
    """What a stage of few tokens costs, by the bucket, and which buckets rows may move to."""

    def __init__(self, costs: Costs, sizes: tuple[int, ...]) -> None:
        few = (size for size in sizes[:-1] if size <= FINE or is_power(size) or is_power(size // 3))
        self._buckets = (*few, sizes[-1])
        self._moving = costs.moving + BOUNDARY
        measured = sorted(costs.stages)
        seconds = np.interp(sizes, measured, [costs.stages[size] for size in measured])
        self._seconds: dict[int, float] = dict(zip(sizes, seconds.tolist(), strict=True))

    def bucket(self, tokens: int) -> int:
        """Where so many tokens may move to."""
        return fitting(self._buckets, tokens)

    def saved(self, size: int, smaller: int, stages: float) -> float:
        """Seconds, by moving from one bucket to a smaller one before so many stages."""
        return (self._seconds[size] - self._seconds[smaller]) * max(0.0, stages) - self._moving


def is_power(number: int) -> bool:
    """Of two."""
    return number & (number - 1) == 0


class Past:
    """How chains of about as many rows went of late, and what the next should be like."""

    def __init__(self, stages: int) -> None:
        self.usual_end = float(stages)
        self._stages = stages
        self._ends: deque[int] = deque(maxlen=CHAINS)
        self._staying: deque[NDArray[np.float64]] = deque(maxlen=SHARES)
        """After each decision, the share of the tokens that had not left."""
        self._most = np.ones(stages + 1)
        """The same of the next: hardly ever is it more."""
        self._moves: dict[int, tuple[Move, ...]] = {}
        self._noted = 0

    @property
    def sure(self) -> int:
        """Stages that every one of them went through."""
        sure = min(self._ends, default=1)
        return max(1, sure - sure % EVERY)

    def note(self, end: int, left_at: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """A chain ended at a decision; each of its rows left at one. Now and then the next ones are planned anew."""
        self._ends.append(end)
        leaving = np.bincount(left_at, weights=lengths, minlength=self._stages + 1)
        self._staying.append(1 - np.cumsum(leaving) / leaving.sum())
        self._noted += 1
        if self._noted % (CHAINS // 2) == 0:
            shares = np.stack(self._staying)
            most = shares.mean(0) + SPREAD * shares.std(0)
            self._most = np.minimum(np.ceil(PARTS * most) / PARTS, 1)
            self.usual_end = fmean(self._ends)
            self._moves.clear()

    def moves(self, size: int, costs: ChainCosts) -> tuple[Move, ...]:
        """Where it will pay to move who stays of a bucket, and how much room they will need."""
        if size not in self._moves:
            self._moves[size] = tuple(self._planned(size, costs))
        return self._moves[size]

    def _planned(self, whole: int, costs: ChainCosts) -> Iterator[Move]:
        first, size = START, whole
        for _ in range(LANES - 1):
            saved = {
                Move(end, smaller): costs.saved(size, smaller, self.usual_end - end)
                for end in range(first + EVERY - first % EVERY, self.sure + 1, EVERY)
                if (smaller := costs.bucket(math.ceil(whole * self._most[end - 1]))) < size
            }
            best = max(saved, key=lambda move: saved[move], default=None)
            if best is None or saved[best] <= 0:
                return
            yield best
            first, size = best

    def end_of_link(self, first: int) -> int:
        """To the end, if who stops on the way saves nothing: what was launched ahead is run in any case."""
        to_the_end = self._stages - self.usual_end <= AHEAD
        return self._stages if to_the_end else max(self.sure, first + 1)


class Leg:
    """Those of a batch who are in one lane."""

    def __init__(self, programs: Programs, lane: int, rows: int, size: int, decisions: int) -> None:
        self.lane, self.rows, self.size = lane, rows, size
        self.which: NDArray[np.int64] = np.empty(0, np.int64)
        """Their numbers in the batch, when the host knows who is there."""
        self.last = len(programs.stages)
        """The last decision that is made here."""
        self._slot = programs.lanes[lane].slot
        self._ticks_before = self._slot.expected - decisions
        """So many decisions are made in other lanes."""
        self._slot.forget(rows)

    def wait(self, decision: int) -> None:
        self._slot.wait(self._ticks_before + decision)

    def staying(self) -> NDArray[np.bool_]:
        """Who has not left, as far as the host knows."""
        staying: NDArray[np.bool_] = self._slot.seen[: len(self.which)] < 0
        return staying

    def last_exit(self) -> int:
        """Of those who have left; it may have been decided after what was waited for."""
        return int(self._slot.seen[: len(self.which)].max(initial=0))

    def answers(self) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Exits (n,), of those who stay -1, and logits (n, C)."""
        exits, logits = self._slot.read(self.rows, len(self.which))
        return exits, logits[0]


class Chain:
    """A batch on its way through all stages, until all have left.

    All that is planned is launched at once: where rows move the device knows who stays, and the host finds it out by
    the same rule. Decisions are read while later stages run. Whoever does not fit where others move to stays behind,
    without an answer. What else the host has to do, such as to fill in the policy's state, it does while the first link
    runs, in which nobody is asked.
    """

    def __init__(self, programs: Programs, past: Past, batch: Packed, size: int) -> None:
        self._programs, self._past, self._batch = programs, past, batch
        self._last = len(programs.stages)
        self._rows = fitting(ROWS, len(batch))
        self._legs = [Leg(programs, 0, self._rows, size, decisions=0)]
        self._legs[0].which = np.arange(len(batch))
        self._launched = self._asked = 0
        """The first stage, and the first whose exits, no link has yet."""
        self.exits = np.full(len(batch), NO_EXIT, np.int32)
        self.logits = np.zeros((len(batch), programs.lanes[0].slot.labels), np.float32)

    def run(
        self,
        moves: tuple[Move, ...],
        decision_of: NDArray[np.int64],
        while_it_starts: Callable[[], None],
        while_it_runs: Callable[[], None],
    ) -> None:
        """Find the exit and the logits of every row, but for those who stayed behind."""
        self._send(range(min(START, self._last)), range(0))
        while_it_starts()
        with self._programs.as_one():
            for move in moves:
                self._send(range(self._launched, move.stage), range(self._asked, move.stage - 1))
                self._move(move)
            self._launch_before(1)
        while_it_runs()
        reading = iter(self._legs)
        leg = next(reading)
        for decision in range(1, self._last + 1):
            self._launch_before(decision)
            if decision > leg.last:
                leg = self._arrived(leg, next(reading))
                if not len(leg.which):
                    return
            leg.wait(decision)
            if not leg.staying().any():
                break
        leg.wait(max(decision, int(decision_of[leg.last_exit()])))  # exits are told before logits
        self._keep_answers(leg)

    def _launch_before(self, decision: int) -> None:
        """What is to be under way before a decision is waited for; the last exits at once, for nothing comes after."""
        while self._asked < decision or self._launched < min(decision + AHEAD, self._last):
            if self._launched < self._last:
                end = self._past.end_of_link(self._launched)
                self._send(range(self._launched, end), range(self._asked, end - 1))
            if self._launched == self._last:
                self._send(range(self._last, self._last), range(self._asked, self._last))

    def _send(self, stages: range, asks: range) -> None:
        leg = self._legs[-1]
        self._programs.link(stages, asks, leg.size, self._rows, leg.lane)
        self._launched, self._asked = stages.stop, asks.stop

    def _move(self, move: Move) -> None:
        leg = self._legs[-1]
        self._programs.gather(move, self._rows, leg.lane, leg.lane + 1)
        leg.last = self._asked
        self._legs.append(Leg(self._programs, leg.lane + 1, self._rows, move.size, decisions=self._asked))

    def _arrived(self, leg: Leg, following: Leg) -> Leg:
        """All decisions before a move are known: so is who moved."""
        self._keep_answers(leg)
        staying = leg.which[leg.staying()]
        following.which = staying[np.cumsum(self._batch.lengths[staying]) <= following.size]
        return following

    def _keep_answers(self, leg: Leg) -> None:
        self.exits[leg.which], self.logits[leg.which] = leg.answers()


class Chains:
    """Runs batches whose rows are too few for pools."""

    def __init__(self, programs: Programs, costs: Costs) -> None:
        self._programs = programs
        self.costs = ChainCosts(costs, programs.token_sizes)
        self._past: defaultdict[int, Past] = defaultdict(lambda: Past(len(programs.stages)))
        """By the order of magnitude of the rows."""
        self._to_note: tuple[Past, NDArray[np.int32], NDArray[np.int64]] | None = None
        self._decision_of = np.zeros(len(programs.exit_layers), np.int64)
        for index, stage in enumerate(programs.stages):
            self._decision_of[list(stage.exits)] = index + 1

    def run(
        self, batch: Packed, fill: Callable[[Packed], int], fill_state: Callable[[NDArray[np.int64]], None]
    ) -> Finished:
        """`fill` sends rows to the device, and says in which bucket; `fill_state` what the policy knows of them."""
        past = self._past[len(batch).bit_length()]
        size = fill(batch)
        moves = past.moves(size, self.costs) if len(batch) >= FEWEST_TO_MOVE else ()
        exits, logits = self._through(past, batch, size, moves, fill_state)
        behind = np.flatnonzero(exits == NO_EXIT)
        if len(behind):
            others = some_of(batch, behind)
            exits[behind], logits[behind] = self._through(past, others, fill(others), (), fill_state)
        self._to_note = past, exits, batch.lengths
        return Finished(batch.tickets, exits.astype(np.int64), list(logits))

    def _through(
        self,
        past: Past,
        batch: Packed,
        size: int,
        moves: tuple[Move, ...],
        fill_state: Callable[[NDArray[np.int64]], None],
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        chain = Chain(self._programs, past, batch, size)
        chain.run(moves, self._decision_of, lambda: fill_state(batch.tickets), self._note)
        return chain.exits, chain.logits

    def _note(self) -> None:
        """How the chain before this one went: nobody waits for its answers any more."""
        if self._to_note is not None:
            past, exits, lengths = self._to_note
            left_at = self._decision_of[exits]
            past.note(int(left_at.max()), left_at, lengths)
            self._to_note = None


def some_of(batch: Packed, which: NDArray[np.int64]) -> Packed:
    """Some of its rows, by their numbers."""
    ends = np.cumsum(batch.lengths)
    tokens = np.concatenate([np.arange(ends[row] - batch.lengths[row], ends[row]) for row in which])
    types = None if batch.token_type_ids is None else batch.token_type_ids[tokens]
    return Packed(batch.tickets[which], batch.lengths[which], batch.input_ids[tokens], types)
