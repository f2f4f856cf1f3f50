# mypy: ignore-errors
"""Triton kernels of an exit: pooling, classifier, who leaves, and moving those who stay into the next pool."""

from __future__ import annotations

import triton
import triton.language as tl

FIRST, MEAN, MAX = 1, 2, 3
"""How `pool_rows` is told what to add up; 0 is nothing."""


@triton.jit
def _pooled(kind: tl.constexpr, first, mean, highest):
    return first if kind == 1 else (mean if kind == 2 else highest)


@triton.jit
def pool_rows(
    out, hidden, start, length, counts,
    width: tl.constexpr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """One vector for each row: the sum of up to three poolings, rounded after each; zeros behind the last row."""
    row = tl.program_id(0)
    column = tl.arange(0, WIDE)
    inside = column < width
    dtype = out.dtype.element_ty
    total = tl.zeros([WIDE], tl.float32)
    if row < tl.load(counts):
        begin = tl.load(start + row).to(tl.int64)
        tokens = tl.load(length + row)
        first = tl.load(hidden + begin * width + column, mask=inside, other=0.0).to(tl.float32)
        mean = tl.zeros([WIDE], tl.float32)
        highest = tl.full([WIDE], -float("inf"), tl.float32)
        if A >= 2 or B >= 2 or C >= 2:
            for block in range(0, tokens, TOKENS):
                token = block + tl.arange(0, TOKENS)
                there = (token < tokens)[:, None] & inside[None, :]
                some = tl.load(hidden + (begin + token)[:, None] * width + column[None, :], mask=there, other=0.0)
                some = some.to(tl.float32)
                mean += tl.sum(some, 0)
                highest = tl.maximum(highest, tl.max(tl.where(there, some, -float("inf")), 0))
        mean = (mean / tokens).to(dtype).to(tl.float32)
        total = _pooled(A, first, mean, highest)
        if B > 0:
            total = (total + _pooled(B, first, mean, highest)).to(dtype).to(tl.float32)
        if C > 0:
            total = (total + _pooled(C, first, mean, highest)).to(dtype).to(tl.float32)
    tl.store(out + row.to(tl.int64) * width + column, total.to(dtype), mask=inside)


@triton.jit(do_not_specialize=["least"])
def classify(out, pooled, weight, bias, poison, least, labels, width: tl.constexpr, WIDE: tl.constexpr):
    """Logits of one row: (R, W) to (R, C). A row with a mark of `least` or more was not finite by now, and gets NaN."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDE)
    x = tl.load(pooled + row * width + column, mask=column < width, other=0.0).to(tl.float32)
    broken = tl.load(poison + row) >= least
    for label in range(labels):
        w = tl.load(weight + label * width + column, mask=column < width, other=0.0).to(tl.float32)
        logit = tl.sum(x * w) + tl.load(bias + label).to(tl.float32)
        logit = tl.where(broken, float("nan"), logit)
        tl.store(out + row * labels + label, logit.to(out.dtype.element_ty))


@triton.jit
def _give_places(
    stays, row, real, rows_before, tokens_before, tiles_before, length, poison,
    next_counts, next_start, next_length, next_poison, new_row, new_start, new_tile, TILE: tl.constexpr,
):  # fmt: skip
    """Where each row that stays will lie, behind those that are there before."""
    tokens = tl.load(length + row, mask=real, other=0) * stays
    tiles = (tokens + TILE - 1) // TILE
    to_row = rows_before + tl.cumsum(stays, 0) - stays
    to_start = tokens_before + tl.cumsum(tokens, 0) - tokens
    to_tile = tiles_before + tl.cumsum(tiles, 0) - tiles
    moved = stays != 0
    tl.store(new_row + row, tl.where(moved, to_row, -1))
    tl.store(new_start + row, to_start)
    tl.store(new_tile + row, to_tile)
    tl.store(next_start + to_row, to_start, mask=moved)
    tl.store(next_length + to_row, tokens, mask=moved)
    tl.store(next_poison + to_row, tl.load(poison + row), mask=moved)
    tl.debug_barrier()  # every warp has read the counts
    tl.store(next_counts, rows_before + tl.sum(stays, 0))
    tl.store(next_counts + 1, tokens_before + tl.sum(tokens, 0))
    tl.store(next_counts + 2, tiles_before + tl.sum(tiles, 0))


@triton.jit
def decide(
    leave, exit_of, slot_exits, ticks,
    counts, length, poison,
    next_counts, next_start, next_length, next_poison,
    new_row, new_start, new_tile,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Who leaves, and where each of the others will lie in the next pool. One program; the pool is empty afterwards."""
    row = tl.arange(0, ROWS)
    real = row < tl.load(counts)
    gone = tl.load(leave + row) != 0
    tl.store(slot_exits + row, tl.where(real & gone, tl.load(exit_of + row), -1))
    stays = (real & (gone == 0)).to(tl.int32)
    tick = tl.load(ticks)
    _give_places(
        stays, row, real, tl.load(next_counts), tl.load(next_counts + 1), tl.load(next_counts + 2), length, poison,
        next_counts, next_start, next_length, next_poison, new_row, new_start, new_tile, TILE,
    )  # fmt: skip
    tl.store(counts, 0)
    tl.store(counts + 1, 0)
    tl.store(counts + 2, 0)
    tl.store(ticks, tick + 1)


@triton.jit
def gather_who_stay(
    slot_exits, counts, length, poison,
    next_exits, next_counts, next_start, next_length, next_poison,
    new_row, new_start, new_tile, room,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Those who have not left yet get places in the next lane, of whom nobody has. One program.

    From the first on whose tokens have no room any more, they get none.
    """
    row = tl.arange(0, ROWS)
    real = row < tl.load(counts)
    stays = (real & (tl.load(slot_exits + row) < 0)).to(tl.int32)
    tokens = tl.load(length + row, mask=real, other=0) * stays
    stays = tl.where(tl.cumsum(tokens, 0) <= room, stays, 0)
    tl.store(next_exits + row, tl.full([ROWS], -1, tl.int32))
    _give_places(
        stays, row, real, 0, 0, 0, length, poison,
        next_counts, next_start, next_length, next_poison, new_row, new_start, new_tile, TILE,
    )  # fmt: skip


@triton.jit
def decide_in_place(
    leave, exit_of, logits, slot_exits, slot_logits, ticks, host_exits, host_logits, host_ticks, counts, labels,
    ROWS: tl.constexpr, TELL: tl.constexpr,
):  # fmt: skip
    """Who leaves first here; all rows stay where they are, and those that have left keep what they left with.

    With TELL it is written into the host's memory as well, the tick last: a copy afterwards would take longer.
    """
    row = tl.arange(0, ROWS)
    real = row < tl.load(counts)
    now = real & (tl.load(leave + row) != 0) & (tl.load(slot_exits + row) < 0)
    exit = tl.load(exit_of + row)
    tl.store(slot_exits + row, exit, mask=now)
    if TELL:
        tl.store(host_exits + row, exit, mask=now)
    for label in range(labels):
        logit = tl.load(logits + row * labels + label).to(tl.float32)
        tl.store(slot_logits + row * labels + label, logit, mask=now)
        if TELL:
            tl.store(host_logits + row * labels + label, logit, mask=now)
    tick = tl.load(ticks) + 1
    tl.debug_barrier()
    tl.store(ticks, tick)
    if TELL:
        seen = tl.inline_asm_elementwise(
            "fence.acq_rel.sys; mov.b32 $0, $1;", "=r,r", [tick], dtype=tl.int32, is_pure=False, pack=1
        )
        tl.store(host_ticks, seen)


@triton.jit
def move_tokens(
    hidden, start, length, new_row, new_start, new_tile,
    next_hidden, next_row_of, next_query, next_begin, next_end,
    width: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The tokens of every row that stays, to the place it was given; several programs share a row."""
    row = tl.program_id(0)
    to_row = tl.load(new_row + row)
    if to_row < 0:
        return
    begin = tl.load(start + row)
    tokens = tl.load(length + row)
    to = tl.load(new_start + row)
    column = tl.arange(0, WIDE)
    step = TOKENS * tl.num_programs(1)
    for block in range(tl.program_id(1) * TOKENS, tokens, step):
        token = block + tl.arange(0, TOKENS)
        there = (token < tokens)[:, None] & (column < width)[None, :]
        some = tl.load(hidden + (begin + token).to(tl.int64)[:, None] * width + column[None, :], mask=there)
        tl.store(next_hidden + (to + token).to(tl.int64)[:, None] * width + column[None, :], some, mask=there)
        tl.store(next_row_of + to + token, tl.full([TOKENS], 0, tl.int32) + to_row, mask=token < tokens)
    if tl.program_id(1) == 0:
        tile = tl.load(new_tile + row)
        for block in range(0, tokens, TILE):
            tl.store(next_query + tile, to + block)
            tl.store(next_begin + tile, to)
            tl.store(next_end + tile, to + tokens)
            tile += 1


@triton.jit
def move_state(state, next_state, new_row, words, WIDE: tl.constexpr):
    """The same for a row's state of `words` words."""
    row = tl.program_id(0).to(tl.int64)
    to = tl.load(new_row + row).to(tl.int64)
    word = tl.arange(0, WIDE)
    there = (word < words) & (to >= 0)
    tl.store(next_state + to * words + word, tl.load(state + row * words + word, mask=there), mask=there)
