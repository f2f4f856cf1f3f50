"""The exits of a stage on the device: logits, the policy's step, who leaves, and the way into the next pool."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
from torch import Tensor

from offramp.engine.graphs import exit_kernels
from offramp.engine.graphs.layers import own_product
from offramp.engine.graphs.memory import NEVER_FINITE, Places, Pool, Rows, Slot, leaves
from offramp.engine.graphs.sizes import ROWS, TILE, warps_of
from offramp.engine.graphs.stages import Stage
from offramp.engine.graphs.weights import HeadWeights
from offramp.policies import Policy, State

KINDS = {"first": exit_kernels.FIRST, "mean": exit_kernels.MEAN, "max": exit_kernels.MAX}
FIRST_ALONE = [exit_kernels.FIRST, 0, 0]


class Heads:
    """Runs exits. Everything is done for a bucket of rows; what lies behind the real ones is ignored."""

    def __init__(
        self,
        heads: Sequence[HeadWeights],
        pooling_of: Sequence[Sequence[str]],
        policy: Policy,
        exit_layers: Sequence[int],
        last: int,
    ) -> None:
        self.heads = heads
        self.kinds_of = [[*(KINDS[kind] for kind in pooling), 0, 0][:3] for pooling in pooling_of]
        self.policy = policy
        self.exit_layers = exit_layers
        self.last = last
        """The exit that takes everybody who is left."""
        weight = heads[0].classifier.weight
        numbers = torch.arange(len(heads), dtype=torch.int32, device=weight.device)
        self._numbers = numbers[:, None].expand(-1, ROWS[-1]).contiguous()
        """Each exit's number, for as many rows as there can be."""

    def logits(self, exit: int, hidden: Tensor, rows: Rows, count: int) -> Tensor:
        """(T, H) to (count, C)."""
        head = self.heads[exit]
        if head.pooler is None:
            pooled = self._pooled(exit, hidden, rows, count)
        else:
            pooled = torch.empty(count, len(head.pooler.weight), dtype=hidden.dtype, device=hidden.device)
            if self.kinds_of[exit] == FIRST_ALONE:  # the product can find these tokens by itself
                own_product(head.pooler, hidden, pooled, "tanh", rows.start[:count])
            else:
                own_product(head.pooler, self._pooled(exit, hidden, rows, count), pooled, "tanh")
        labels, width = head.classifier.weight.shape
        logits = torch.empty(count, labels, dtype=hidden.dtype, device=hidden.device)
        exit_kernels.classify[(count,)](
            logits, pooled, head.classifier.weight, head.classifier.bias, rows.poison,
            NEVER_FINITE - self.exit_layers[exit], labels,
            width=width, WIDE=triton.next_power_of_2(width), num_warps=1,
        )  # fmt: skip
        return logits

    def _pooled(self, exit: int, hidden: Tensor, rows: Rows, count: int) -> Tensor:
        """(T, H) to (count, H)."""
        width = hidden.shape[1]
        pooled = torch.empty(count, width, dtype=hidden.dtype, device=hidden.device)
        a, b, c = self.kinds_of[exit]
        exit_kernels.pool_rows[(count,)](
            pooled, hidden, rows.start, rows.length, rows.counts,
            width=width, A=a, B=b, C=c, WIDE=triton.next_power_of_2(width), TOKENS=8, num_warps=4,
        )  # fmt: skip
        return pooled

    def step(
        self, stage: Stage, hidden: Tensor, rows: Rows, count: int, state: State
    ) -> tuple[Tensor, Tensor, Tensor, State]:
        """Who leaves (R,), by which exit (R,), with which logits (R, C), and the next state."""
        leave: Tensor | None = None
        for exit in stage.exits:
            now = self.logits(exit, hidden, rows, count)
            goes, state = self.policy.step(self.exit_layers[exit], now, state)
            if exit == self.last:
                goes = torch.ones_like(goes)
            if leave is None:
                leave, logits = goes, now
                by = self._numbers[exit, :count]
            else:  # the first exit that lets a row go has it
                logits = torch.where(leave.unsqueeze(1), logits, now)
                by = torch.where(leave, by, exit)
                leave = leave | goes
        assert leave is not None
        return leave, by, logits, state

    def leave(
        self,
        stage: Stage,
        hidden: Tensor,
        pool: Pool,
        count: int,
        after: Pool,
        slot: Slot,
        places: Places,
    ) -> None:
        """Those who leave go to the slot, the others to the pool `after`."""
        rows = pool.rows
        leave, by, logits, state = self.step(stage, hidden, rows, count, _first(pool.state, count))
        slot.logits(count).copy_(logits)
        exit_kernels.decide[(1,)](
            leave.view(torch.uint8), by, slot.exits(count), slot.ticks,
            rows.counts, rows.length, rows.poison,
            after.rows.counts, after.rows.start, after.rows.length, after.rows.poison,
            places.row, places.start, places.tile,
            ROWS=count, TILE=TILE, num_warps=warps_of(count),
        )  # fmt: skip
        slot.send(count)
        if stage.exits[-1] == self.last:
            return
        move(Pool(rows, hidden, state), after, count, places)

    def leave_in_place(
        self, stage: Stage, hidden: Tensor, state: State, rows: Rows, count: int, after: State, slot: Slot
    ) -> None:
        """Those who leave go to the slot; all stay where they are."""
        leave, by, logits, state = self.step(stage, hidden, rows, count, _first(state, count))
        tell = slot.is_told(count)
        exit_kernels.decide_in_place[(1,)](
            leave.view(torch.uint8), by, logits, slot.exits(count), slot.logits(count), slot.ticks,
            slot.host_exits(count), slot.host_logits(count), slot.host_ticks, rows.counts,
            logits.shape[1], ROWS=count, TELL=tell, num_warps=warps_of(count),
        )  # fmt: skip
        if not tell:
            slot.send(count)
        for old, new in zip(leaves(state), leaves(after), strict=False):  # nothing comes after the last stage
            new[:count].copy_(old)

    def record(self, stage: Stage, hidden: Tensor, rows: Rows, count: int, slot: Slot) -> None:
        """The logits of the stage's exits for every row."""
        for exit in stage.exits:
            slot.logits(count, exit).copy_(self.logits(exit, hidden, rows, count))
        if stage.exits[-1] == self.last:
            slot.ticks.add_(1)
            slot.send(count, self.last + 1)


def gather(lane: Pool, slot: Slot, after: Pool, next_slot: Slot, count: int, tokens: int, places: Places) -> None:
    """Those of a lane who have not left go to another, which was empty and has room for so many tokens."""
    rows, to = lane.rows, after.rows
    exit_kernels.gather_who_stay[(1,)](
        slot.exits(count), rows.counts, rows.length, rows.poison,
        next_slot.exits(count), to.counts, to.start, to.length, to.poison,
        places.row, places.start, places.tile, tokens,
        ROWS=count, TILE=TILE, num_warps=warps_of(count),
    )  # fmt: skip
    move(Pool(rows, lane.hidden, _first(lane.state, count)), after, count, places)


def move(pool: Pool, after: Pool, count: int, places: Places) -> None:
    """Tokens and state of those who stay, to the places they were given."""
    rows, to, width = pool.rows, after.rows, pool.hidden.shape[1]
    exit_kernels.move_tokens[(count, 4)](
        pool.hidden, rows.start, rows.length, places.row, places.start, places.tile,
        after.hidden, to.row_of, to.tile_query, to.tile_begin, to.tile_end,
        width=width, WIDE=triton.next_power_of_2(width), TOKENS=4, TILE=TILE, num_warps=4,
    )  # fmt: skip
    for old, new in zip(leaves(pool.state), leaves(after.state), strict=True):
        _move_state(old.contiguous(), new, places.row, count)


def _first(state: State, count: int) -> State:
    if isinstance(state, tuple):
        return tuple(_first(part, count) for part in state)
    return None if state is None else state[:count]


def _move_state(old: Tensor, new: Tensor, new_row: Tensor, count: int) -> None:
    size = old[0].numel() * old.element_size()
    kind = torch.int32 if size % 4 == 0 else torch.uint8
    words = size // kind.itemsize
    exit_kernels.move_state[(count,)](
        old.reshape(count, -1).view(kind), new.view(len(new), -1).view(kind), new_row, words,
        WIDE=triton.next_power_of_2(words), num_warps=1,
    )  # fmt: skip
