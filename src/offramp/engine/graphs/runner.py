"""Rows through CUDA graphs: packed, leaving where the policy says so, survivors of several batches run together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.engine.graphs.chains import Chains
from offramp.engine.graphs.costs import measure
from offramp.engine.graphs.memory import leaves
from offramp.engine.graphs.programs import Programs
from offramp.engine.graphs.sizes import ROWS, fitting
from offramp.engine.graphs.weights import Where
from offramp.engine.runner import Finished, Packed, Runner
from offramp.errors import OfframpError, one_line
from offramp.models import MultiExitModel
from offramp.policies import Policy

IN_FLIGHT = 3
"""Steps under way: while the host reads what one decided, the device runs the others."""


@dataclass
class Waiting:
    """The host's view of a pool: the same rows in the same order."""

    tickets: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    coming_rows: int = 0
    """At most so many are under way to it."""
    coming_tokens: int = 0
    tokens: int = 0

    def add(self, tickets: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        self.tickets = np.concatenate([self.tickets, tickets])
        self.lengths = np.concatenate([self.lengths, lengths])
        self.tokens += int(lengths.sum())


@dataclass(frozen=True)
class Step:
    """A stage that was launched on these rows."""

    stage: int
    tickets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    tokens: int
    row_size: int
    tick: int
    """Of the stage's slot, when it has been decided."""


class GraphRunner(Runner):
    """Rows wait in pools, one before each stage; the deepest pool that is full enough runs, else new rows come in.

    `budget` is how many tokens are taken in at once. With `together` rows may wait from one `submit` to the next;
    without, every `submit` finishes its own rows.
    """

    def __init__(
        self,
        model: MultiExitModel,
        policy: Policy,
        *,
        device: torch.device | str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
        record: bool = False,
        budget: int = 16384,
        together: bool = True,
    ) -> None:
        policy.check(model.objective.name, model.exits.layers)
        self.policy = policy
        self.record = record
        self.together = together
        self.budget = max(budget, model.backbone.max_length)
        place = torch.device(device)
        if place.index is None:
            place = torch.device("cuda", torch.cuda.current_device())
        try:
            self.programs = Programs(model, policy, Where(place, dtype), self.budget, record)
            self._measure()
        except OfframpError:
            raise
        except Exception as error:  # Triton and CUDA have many kinds
            raise OfframpError(f"CUDA graphs cannot run this here ({one_line(error)}): use backend torch") from error
        self._in_one_go = self.programs.in_one_go
        self._has_state = bool(leaves(self.programs.intake.state))
        self._chained: tuple[Packed, int] | None = None
        """A batch that goes through in one go and is not yet read, and its bucket of rows."""
        self._pools = [Waiting() for _ in self.programs.stages]
        self._queue: deque[Packed] = deque()
        self._flying: deque[Step] = deque()
        self._finished: list[Finished] = []

    def _measure(self) -> None:
        """Find out from how many tokens on a stage is worth running, and up to how many rows are not worth dropping."""
        self.worth, self.few = self.budget // 2, 0
        if not self.programs.in_one_go:
            with torch.no_grad(), torch.cuda.stream(self.programs.stream):
                self.costs = measure(self.programs, self.budget)
            self.worth, self.few = self.costs.worth(self.budget), self.costs.few()
            self.chains = Chains(self.programs, self.costs)

    @torch.no_grad()
    def submit(self, rows: Packed) -> list[Finished]:
        self._queue.extend(self._pieces(rows))
        if not self.together:
            return self.flush()
        if self._queued() >= self.worth:
            with torch.cuda.stream(self.programs.stream):
                self._take_in()
        return self._hand_out()

    @torch.no_grad()
    def flush(self) -> list[Finished]:
        with torch.cuda.stream(self.programs.stream):
            self._finish_all()
        return self._hand_out()

    def drop(self) -> None:
        self.programs.wait()
        self._queue.clear()
        self._flying.clear()
        self._finished.clear()
        self._chained = None
        self._pools = [Waiting() for _ in self.programs.stages]
        with torch.cuda.stream(self.programs.stream):
            for pool in self.programs.pools:
                pool.rows.counts.zero_()
        for slot in self.programs.all_slots():
            slot.expected = int(slot.seen_ticks[0])  # one may have been counted and not launched

    def _hand_out(self) -> list[Finished]:
        finished, self._finished = self._finished, []
        return finished

    def _pieces(self, rows: Packed) -> list[Packed]:
        """Cut where the budget of tokens, or the room for rows, is full."""
        if len(rows.input_ids) <= self.budget and len(rows) <= self.programs.most_rows:
            return [rows] if len(rows) else []
        ends = np.cumsum(rows.lengths)
        pieces, first = [], 0
        while first < len(rows):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + self.budget, side="right"))
            last = min(max(last, first + 1), first + self.programs.most_rows)
            tokens = slice(before, int(ends[last - 1]))
            types = None if rows.token_type_ids is None else rows.token_type_ids[tokens]
            pieces.append(Packed(rows.tickets[first:last], rows.lengths[first:last], rows.input_ids[tokens], types))
            first = last
        return pieces

    # New rows

    def _queued(self) -> int:
        return sum(len(piece.input_ids) for piece in self._queue)

    def _next_batch(self) -> Packed:
        """As many of the queue as fit the budget, as one."""
        taken = [self._queue.popleft()]
        tokens, count = len(taken[0].input_ids), len(taken[0])
        while (
            self._queue
            and tokens + len(self._queue[0].input_ids) <= self.budget
            and count + len(self._queue[0]) <= self.programs.most_rows
        ):
            taken.append(self._queue.popleft())
            tokens, count = tokens + len(taken[-1].input_ids), count + len(taken[-1])
        return taken[0] if len(taken) == 1 else merged(taken)

    def _fill(self, batch: Packed) -> int:
        """Start its way to the device; returns its bucket."""
        size = fitting(self.programs.token_sizes, len(batch.input_ids))
        self.programs.wait_for_intake()
        self.programs.intake.fill(size, batch.lengths, batch.input_ids, batch.token_type_ids)
        return size

    def _fill_state(self, tickets: NDArray[np.int64]) -> None:
        """Nobody asks for it before the first exits: let the first layers run meanwhile."""
        if self._has_state:
            self.programs.intake.fill_state(self.policy.start(torch.from_numpy(np.ascontiguousarray(tickets))))

    # Many rows: stage by stage, from pool to pool

    def _take_in(self) -> None:
        """Until every queued row is under way, except a few that may wait for company."""
        while self._queued() >= self.worth:
            if self._in_one_go:
                self._chain_in_one_go(self._next_batch())
                continue
            stage = self._fullest_below()
            if len(self._flying) == IN_FLIGHT:
                self._collect()
            elif stage is not None:
                self._launch_pool(stage)
            else:
                self._launch_new()

    def _fullest_below(self) -> int | None:
        """The deepest pool that is worth running, and to which nothing is under way."""
        for stage in range(len(self._pools) - 1, 0, -1):
            pool = self._pools[stage]
            if pool.tokens >= self.worth and not pool.coming_rows:
                return stage
        return None

    def _finish_all(self) -> None:
        """Everything that is queued or waits, from the shallowest pool up."""
        while self._queue:
            idle = not self._flying and not any(len(pool.tickets) for pool in self._pools)
            if self._in_one_go:
                self._chain_in_one_go(self._next_batch())
            elif idle and self._queued() <= self.few:
                self._chain(self._next_batch())
            elif len(self._flying) == IN_FLIGHT:
                self._collect()
            else:
                self._launch_new()
        self._collect_chained()
        while self._flying or any(len(pool.tickets) for pool in self._pools):
            stage = next((s for s, pool in enumerate(self._pools) if len(pool.tickets) or pool.coming_rows), None)
            if stage is not None and self._pools[stage].coming_rows:
                stage = self._fullest_below()
            if stage is None or len(self._flying) == IN_FLIGHT:
                self._collect()
            else:
                self._launch_pool(stage)

    def _launch_new(self) -> None:
        self._land(0)
        batch = self._next_batch()
        self._make_room(0, len(batch.input_ids), len(batch))
        size = self._fill(batch)
        self._launch(0, batch.tickets, batch.lengths, len(batch.input_ids), size)

    def _launch_pool(self, stage: int) -> None:
        self._land(stage)
        self._make_room(stage, self._pools[stage].tokens, len(self._pools[stage].tickets))
        pool = self._pools[stage]
        self._pools[stage] = Waiting()
        self._launch(stage, pool.tickets, pool.lengths, pool.tokens, fitting(self.programs.token_sizes, pool.tokens))

    def _land(self, stage: int) -> None:
        """What a stage decided is overwritten by its next run: read it first."""
        while any(step.stage == stage for step in self._flying):
            self._collect()

    def _make_room(self, stage: int, tokens: int, rows: int) -> None:
        """Before rows are sent to the next pool, see that they will fit whoever stays."""
        if stage + 1 == len(self._pools):
            return
        while True:
            after = self._pools[stage + 1]
            fits = after.tokens + after.coming_tokens + tokens <= self.programs.most_tokens
            if fits and len(after.tickets) + after.coming_rows + rows <= self.programs.most_rows:
                return
            if after.coming_rows or len(self._flying) == IN_FLIGHT:
                self._collect()
            else:
                self._launch_pool(stage + 1)

    def _launch(
        self, stage: int, tickets: NDArray[np.int64], lengths: NDArray[np.int64], tokens: int, size: int
    ) -> None:
        row_size = fitting(ROWS, len(tickets))
        self.programs.layers(stage, size)
        if stage == 0:
            self._fill_state(tickets)
        self.programs.exit(stage, row_size)
        step = Step(stage, tickets, lengths, tokens, row_size, self.programs.slots[stage].expected)
        if stage + 1 < len(self._pools):
            self._pools[stage + 1].coming_rows += len(tickets)
            self._pools[stage + 1].coming_tokens += tokens
        self._flying.append(step)

    def _collect(self) -> None:
        """Wait for the oldest step, and do on the host what the device did."""
        step = self._flying.popleft()
        slot = self.programs.slots[step.stage]
        slot.wait(step.tick)
        exits, logits = slot.read(step.row_size, len(step.tickets))
        left = exits >= 0
        self._finish(step.tickets[left], exits[left], logits[0, left])
        if step.stage + 1 < len(self._pools):
            after = self._pools[step.stage + 1]
            after.coming_rows -= len(step.tickets)
            after.coming_tokens -= step.tokens
            after.add(step.tickets[~left], step.lengths[~left])

    def _finish(self, tickets: NDArray[np.int64], exits: NDArray[np.int32], logits: NDArray[np.float32]) -> None:
        if len(tickets):
            self._finished.append(Finished(tickets, exits.astype(np.int64), list(logits)))

    # Few rows, or none that leaves on the way: all stay together

    def _chain(self, batch: Packed) -> None:
        self._finished.append(self.chains.run(batch, self._fill, self._fill_state))

    def _chain_in_one_go(self, batch: Packed) -> None:
        """Launch a batch; read the one before it while this one runs."""
        programs, last = self.programs, len(self.programs.stages)
        size, rows = self._fill(batch), fitting(ROWS, len(batch))
        programs.link(range(1), range(0), size, rows)
        self._fill_state(batch.tickets)
        if last > 1:
            programs.link(range(1, last), range(last - 1 if self.record else 0), size, rows)
        self._collect_chained()  # the last link overwrites what the batch before it left
        programs.link(range(last, last), range(last - 1, last), size, rows)
        self._chained = batch, rows

    def _collect_chained(self) -> None:
        if self._chained is None:
            return
        (batch, rows), self._chained = self._chained, None
        slot = self.programs.slots[0]
        slot.wait(slot.expected)
        number = len(self.programs.exit_layers) if self.record else 1
        exits, logits = slot.read(rows, len(batch), number)
        if self.record:
            exits, logits = np.full(len(batch), number - 1, np.int32), logits.swapaxes(0, 1)  # (n, E, C)
        self._finish(batch.tickets, exits, logits if self.record else logits[0])


def merged(batches: list[Packed]) -> Packed:
    """Several batches as one."""
    types: Any = None
    if any(batch.token_type_ids is not None for batch in batches):
        types = np.concatenate(
            [np.zeros_like(b.input_ids) if b.token_type_ids is None else b.token_type_ids for b in batches]
        )
    return Packed(
        np.concatenate([batch.tickets for batch in batches]),
        np.concatenate([batch.lengths for batch in batches]),
        np.concatenate([batch.input_ids for batch in batches]),
        types,
    )
