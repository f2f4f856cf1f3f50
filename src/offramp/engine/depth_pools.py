"""Rows that come one by one, under any policies: those at the same depth run together, whenever they came."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress

import torch

from offramp.engine.feeding import pack
from offramp.engine.runner import Finished
from offramp.engine.waves import Layers, Route, Wave, advance, joined, split
from offramp.tasks.encoding import Row

PATIENCE = 0.02
"""Seconds that a pool may be passed over for a fuller one."""
UNDER_WAY = 4
"""Batches' worth of tokens that may be between two layers: their hidden states lie in memory."""


@dataclass
class Pool:
    """Rows that wait for the same layer."""

    waves: dict[Route, Wave] = field(default_factory=dict)
    tokens: int = 0
    since: float = 0.0
    """When the oldest came."""

    def add(self, wave: Wave, now: float) -> None:
        if not self.waves:
            self.since = now
        known = self.waves.get(wave.route)
        self.waves[wave.route] = wave if known is None else joined([known, wave])
        self.tokens += tokens_of([wave])

    def take(self, most: int) -> list[Wave]:
        """The first rows, up to so many tokens, but one at least."""
        taken: list[Wave] = []
        for route, wave in list(self.waves.items()):
            fits = int((wave.lengths.cumsum() <= most).sum()) or (not taken)
            if not fits:
                break
            del self.waves[route]
            if fits < len(wave):
                wave, rest = split(wave, fits)
                self.waves[route] = rest
            taken.append(wave)
            tokens = tokens_of([wave])
            most, self.tokens = most - tokens, self.tokens - tokens
        return taken


class DepthPools:
    """Runs a layer at a time, for the pool that is fullest, or that has been passed over for too long.

    Rows that leave free their place at once, and waiting rows join at the first layer. Where all layers are the same,
    rows of all depths are one batch.

    Args:
        layers: how they are computed.
        same_layers: whether all are the same.
        most_tokens: in a batch.
        is_gone: whether nobody waits for a row any more.
    """

    def __init__(
        self,
        layers: Layers,
        same_layers: bool,
        most_tokens: int,
        is_gone: Callable[[int], bool] = lambda ticket: False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.layers = layers
        self.same_layers = same_layers
        self.most_tokens = most_tokens
        self.is_gone = is_gone
        self.clock = clock
        self.waiting: deque[tuple[int, Row, Route]] = deque()
        self.waiting_tokens = 0
        self.pools: defaultdict[int, Pool] = defaultdict(Pool)
        """By the layers that were run, 1 or more."""
        self.running: list[int] = []
        """The rows of the last step: where it failed, those that are lost."""
        self.let_in: list[int] = []
        """Those of them whose first step it was."""
        self.dropped: list[int] = []
        """The rows that nobody waited for any more when their turn came in the last step."""
        self.tokens_run = 0
        """In the last step."""

    def add(self, ticket: int, row: Row, route: Route) -> None:
        self.waiting.append((ticket, row, route))
        self.waiting_tokens += len(row)

    def __bool__(self) -> bool:
        return bool(self.waiting) or any(pool.waves for pool in self.pools.values())

    def step(self) -> list[Finished]:
        """Run one layer; return who has left. Rows that nobody waits for are dropped."""
        self.running, self.let_in, self.dropped, self.tokens_run = [], [], [], 0
        waves = self._all_depths() if self.same_layers else self._one_depth()
        waves = [wave for wave in map(self._still_wanted, waves) if wave.hidden]
        self._note(waves)
        if not waves:
            return []
        self.tokens_run = tokens_of(waves)
        finished = advance(self.layers, waves)
        now = self.clock()
        for wave in waves:
            if wave.hidden:
                self.pools[wave.layer].add(wave, now)
        return finished

    def _all_depths(self) -> list[Wave]:
        """The deepest first: who is under way goes on, and who waits takes the places that are left."""
        room, waves = self.most_tokens, []
        for depth in sorted(self.pools, reverse=True):
            if room > 0 and self.pools[depth].waves:
                waves += self.pools[depth].take(room)
                room = self.most_tokens - tokens_of(waves)
        self._note(waves)
        if room > 0 and self.waiting:
            waves += self._let_in(room, at_least_one=not waves)
        return waves

    def _one_depth(self) -> list[Wave]:
        depth = self._next_depth()
        if depth == 0:
            return self._let_in(self.most_tokens)
        waves = self.pools[depth].take(self.most_tokens)
        self._note(waves)
        return waves

    def _note(self, waves: Sequence[Wave]) -> None:
        self.running = [ticket for wave in waves for ticket in wave.tickets.tolist()]

    def _next_depth(self) -> int:
        """The fullest, of equally full ones the deepest; but first who was passed over for too long.

        Rows that wait before the first layer are not passed over: those under way leave in the end, and then it is
        their turn.
        """
        under_way = {depth: pool for depth, pool in self.pools.items() if pool.waves}
        tokens = {depth: min(pool.tokens, self.most_tokens) for depth, pool in under_way.items()}
        if self.waiting and sum(pool.tokens for pool in under_way.values()) < UNDER_WAY * self.most_tokens:
            tokens[0] = min(self.waiting_tokens, self.most_tokens)
        if under_way:
            oldest = min(under_way, key=lambda depth: under_way[depth].since)
            if self.clock() - under_way[oldest].since > PATIENCE:
                return oldest
        return max(tokens, key=lambda depth: (tokens[depth], depth))

    def _let_in(self, room: int, at_least_one: bool = True) -> list[Wave]:
        """Waiting rows, embedded."""
        by_route: defaultdict[Route, list[tuple[int, Row]]] = defaultdict(list)
        while self.waiting and (len(self.waiting[0][1]) <= room or (at_least_one and not by_route)):
            ticket, row, route = self.waiting.popleft()
            self.waiting_tokens -= len(row)
            if self.is_gone(ticket):
                self.dropped.append(ticket)
            else:
                by_route[route].append((ticket, row))
                room -= len(row)
        self.let_in = [ticket for rows in by_route.values() for ticket, _ in rows]
        self.running += self.let_in
        return [route.start(self.layers, pack(rows)) for route, rows in by_route.items()]

    def _still_wanted(self, wave: Wave) -> Wave:
        gone = [self.is_gone(ticket) for ticket in wave.tickets.tolist()]
        if any(gone):
            self.dropped += compress(wave.tickets.tolist(), gone)
            wave.keep(~torch.tensor(gone))
        return wave


def tokens_of(waves: Sequence[Wave]) -> int:
    return sum(int(wave.lengths.sum()) for wave in waves)
