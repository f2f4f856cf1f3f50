"""Few rows: they stay together while exits are asked, and move to a smaller bucket where that pays."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from offramp.engine.graphs.costs import Costs
from offramp.engine.graphs.sizes import ROWS, fitting
from offramp.engine.graphs.stages import START
from offramp.engine.runner import Finished, Packed

if TYPE_CHECKING:
    from offramp.engine.graphs.programs import Programs

CHAINS = 8
"""How many chains are looked back on, to see how far the next will go."""
EVERY = 3
"""A link ends at a stage that this divides, or has one stage alone: few kinds, for each is captured once."""
FEWEST_TO_MOVE = 4
"""Rows: of fewer nobody knows how many will stay."""
NEWEST = 0.2
"""The share that the newest chain has in what is expected of the next."""
BOUNDARY = 8e-6
"""Seconds that another link costs."""
AHEAD = 2
"""Stages that are launched before the host knows who has left: it takes longer than one to see, and to launch."""


class ChainCosts:
    """What a stage of few tokens costs, by the bucket, and which buckets rows may move to."""

    def __init__(self, costs: Costs, sizes: tuple[int, ...]) -> None:
        self._buckets = (*(size for size in sizes[:-1] if is_power(size) or is_power(size // 3)), sizes[-1])
        self._moving = costs.moving + BOUNDARY
        measured = sorted(costs.stages)
        seconds = np.interp(sizes, measured, [costs.stages[size] for size in measured])
        self._seconds: dict[int, float] = dict(zip(sizes, seconds.tolist(), strict=True))

    def bucket(self, tokens: int) -> int:
        """Where so many tokens may move to: one of few sizes, for each kind of link is captured once."""
        return fitting(self._buckets, tokens)

    def saved(self, size: int, smaller: int, stages: float) -> float:
        """Seconds, by moving from one bucket to a smaller one before so many stages."""
        return (self._seconds[size] - self._seconds[smaller]) * max(0.0, stages) - self._moving


def is_power(number: int) -> bool:
    """Of two."""
    return number & (number - 1) == 0


class Past:
    """How chains of about as many rows went of late, and where the links of the next should end.

    A link is launched `AHEAD` stages before the device needs it, by what was decided until then.
    """

    def __init__(self, stages: int) -> None:
        self.usual_end = float(stages)
        self._stages = stages
        self._ends: deque[int] = deque(maxlen=CHAINS)
        self._staying = np.ones(stages + 1)
        """After each decision, the share of the tokens that has not left."""
        self._links: dict[tuple[int, int, int], int] = {}
        self._noted = 0

    @property
    def sure(self) -> int:
        """Stages that every one of them went through."""
        sure = min(self._ends, default=1)
        return max(1, sure - sure % EVERY)

    def note(self, end: int, left_at: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        """A chain ended at a decision; each of its rows left at one. Now and then the next ones are planned anew."""
        self._ends.append(end)
        self._noted += 1
        if self._noted % (CHAINS // 2) == 1:
            leaving = np.bincount(left_at, weights=lengths, minlength=len(self._staying))
            staying = 1 - np.cumsum(leaving) / leaving.sum()
            self._staying = staying if self._noted == 1 else self._staying + NEWEST * (staying - self._staying)
            self.usual_end = fmean(self._ends)
            self._links.clear()

    def end_of_link(self, first: int, whole: int, size: int, costs: ChainCosts) -> int:
        """Where to move who stays of a `whole` bucket, if that will pay; else as far as it goes without looking."""
        key = first, whole, size
        if key not in self._links:
            saved = {
                end: costs.saved(size, costs.bucket(int(whole * self._staying[end - AHEAD])), self.usual_end - end)
                for end in range(first + EVERY - first % EVERY, self.sure + 1, EVERY)
            }
            best = max(saved, key=lambda end: saved[end], default=None)
            self._links[key] = best if best is not None and saved[best] > 0 else self._unmoved(first)
        return self._links[key]

    def _unmoved(self, first: int) -> int:
        """To the end, if who stops on the way saves nothing: what was launched ahead is run in any case."""
        to_the_end = self._stages - self.usual_end <= AHEAD
        return self._stages if to_the_end else max(self.sure, first + 1)


class Riders:
    """Those of a batch who are in one lane."""

    def __init__(self, programs: Programs, lane: int, count: int, size: int, decisions: int = 0) -> None:
        self.lane, self.size = lane, size
        self.rows = fitting(ROWS, count)
        self.which = np.arange(count)
        """Their numbers in the batch. Who moves is known when the last decision before it is."""
        self._slot = programs.lanes[lane].slot
        self._ticks_before = self._slot.expected - decisions
        """So many decisions are made in other lanes."""
        self._slot.forget(self.rows)

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

    Decisions are read while later stages run, which were launched before. What else the host has to do, such as to fill
    in the policy's state, it does while the first link runs, in which nobody is asked.
    """

    def __init__(self, programs: Programs, costs: ChainCosts, past: Past, batch: Packed, size: int) -> None:
        self._programs, self._costs, self._past, self._batch, self._size = programs, costs, past, batch, size
        self._last = len(programs.stages)
        self._riders = Riders(programs, 0, len(batch), size)
        self._next: tuple[int, Riders] | None = None
        """A move that was launched, the first decision after it, and who will be there."""
        self._launched = self._asked = 0
        """The first stage, and the first whose exits, no link has yet."""
        self._answers: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None

    def run(
        self, decision_of: NDArray[np.int64], while_it_starts: Callable[[], None]
    ) -> tuple[int, NDArray[np.int32], NDArray[np.float32]]:
        """The decision at which the last left, and every row's exit and logits."""
        self._send(range(min(START, self._last)), range(0))
        while_it_starts()
        for decision in range(1, self._last + 1):
            while self._asked < decision or self._launched < min(decision + AHEAD, self._last):
                self._move()
                self._link()
            if self._next is not None and self._next[0] == decision:
                self._settle()
            self._riders.wait(decision)
            if not self._riders.staying().any():
                break
        end = max(decision, int(decision_of[self._riders.last_exit()]))
        self._riders.wait(end)  # exits are told before logits
        self._keep_answers()
        assert self._answers is not None
        return end, *self._answers

    @property
    def _coming(self) -> Riders:
        """Those whom the next link is for."""
        return self._riders if self._next is None else self._next[1]

    def _link(self) -> None:
        """Launch the next stages, with the exits before them; the last exits at once, for no decision is waited for."""
        if self._launched < self._last:
            end = self._past.end_of_link(self._launched, self._size, self._coming.size, self._costs)
            self._send(range(self._launched, end), range(self._asked, end - 1))
        if self._launched == self._last:
            self._send(range(self._last, self._last), range(self._asked, self._last))

    def _send(self, stages: range, asks: range) -> None:
        riders = self._coming
        self._programs.link(stages, asks, riders.size, riders.rows, riders.lane)
        self._launched, self._asked = stages.stop, asks.stop

    def _move(self) -> None:
        """Before the next link, whoever stays goes to the next lane and a smaller bucket, if that pays."""
        stage, riders = self._launched, self._riders
        up_to_date = 0 < self._asked == stage - 1  # but for the exits of the stage before, which are asked over there
        if not up_to_date or stage == self._last or self._next is not None or len(riders.which) < FEWEST_TO_MOVE:
            return
        staying = riders.staying()
        smaller = self._costs.bucket(int(self._batch.lengths[riders.which[staying]].sum()))
        if self._costs.saved(riders.size, smaller, self._past.usual_end - stage) > 0:
            to = 2 if riders.lane == 1 else 1
            self._programs.gather(stage, riders.rows, riders.lane, to)
            count = int(np.count_nonzero(staying))
            self._next = stage, Riders(self._programs, to, count, smaller, decisions=stage - 1)

    def _settle(self) -> None:
        """All decisions before a move are known: so is who moved."""
        assert self._next is not None
        self._keep_answers()
        who = self._riders.which[self._riders.staying()]
        (_, self._riders), self._next = self._next, None
        self._riders.which = who

    def _keep_answers(self) -> None:
        exits, logits = self._riders.answers()
        if self._answers is None:
            self._answers = exits, logits
        else:
            for kept, new in zip(self._answers, (exits, logits), strict=True):
                kept[self._riders.which] = new


class Chains:
    """Runs batches whose rows are too few for pools."""

    def __init__(self, programs: Programs, costs: Costs) -> None:
        self._programs = programs
        self.costs = ChainCosts(costs, programs.token_sizes)
        self._past: defaultdict[int, Past] = defaultdict(lambda: Past(len(programs.stages)))
        """By the order of magnitude of the rows."""
        self._to_note: tuple[Past, int, NDArray[np.int32], NDArray[np.int64]] | None = None
        self._decision_of = np.zeros(len(programs.exit_layers), np.int64)
        for index, stage in enumerate(programs.stages):
            self._decision_of[list(stage.exits)] = index + 1

    def run(self, batch: Packed, size: int, fill_state: Callable[[], None]) -> Finished:
        """A batch that lies in the intake, in a bucket of `size`."""

        def while_it_starts() -> None:
            fill_state()
            self._note()

        past = self._past[len(batch).bit_length()]
        chain = Chain(self._programs, self.costs, past, batch, size)
        end, exits, logits = chain.run(self._decision_of, while_it_starts)
        self._to_note = past, end, exits, batch.lengths
        return Finished(batch.tickets, exits.astype(np.int64), list(logits))

    def _note(self) -> None:
        """How the chain before this one went: nobody waits for its answers any more."""
        if self._to_note is not None:
            past, end, exits, lengths = self._to_note
            past.note(end, self._decision_of[exits], lengths)
            self._to_note = None
