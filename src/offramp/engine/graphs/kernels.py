# mypy: ignore-errors
"""Triton kernels of a layer over packed rows: embeddings, attention, residual and LayerNorm, activation.

Rows lie end to end. `row_of` (T,) names each token's row and `counts` holds how many rows, tokens and tiles there are:
what lies behind them, up to the bucket, is old but finite numbers that nobody reads. A token that is not finite becomes
zeros and marks its row in `poison`: a NaN must not reach neighbours in the same tile, where even 0 · NaN is NaN. The
mark is the larger the sooner it was: an exit that is asked while later layers run heeds the marks of those before it.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from offramp.engine.graphs.following import follow


@triton.jit
def number_rows(counts, length, start, first_tile, ROWS: tl.constexpr, TILE: tl.constexpr):
    """From the rows' lengths, where each begins and its tiles begin. One program."""
    row = tl.arange(0, ROWS)
    real = row < tl.load(counts)
    tokens = tl.load(length + row, mask=real, other=0)
    tiles = (tokens + TILE - 1) // TILE
    tl.store(start + row, tl.where(real, tl.cumsum(tokens, 0) - tokens, 0))
    tl.store(first_tile + row, tl.cumsum(tiles, 0) - tiles)
    tl.store(counts + 2, tl.sum(tiles, 0))


@triton.jit
def lay_rows(
    counts, length, start, first_tile, ids, row_of, positions, tile_query, tile_begin, tile_end,
    PAD: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Each token's row and position, and each tile's place.

    With a padding token (PAD, else -1) positions are RoBERTa's: from PAD + 1 on; PAD itself is not counted, and
    stays at PAD.
    """
    row = tl.program_id(0)
    if row >= tl.load(counts):
        return
    begin = tl.load(start + row)
    tokens = tl.load(length + row)
    tile = tl.load(first_tile + row)
    counted = 0
    for block in range(0, tokens, TILE):
        token = block + tl.arange(0, TILE)
        there = token < tokens
        tl.store(row_of + begin + token, tl.full([TILE], 0, tl.int32) + row, mask=there)
        place = token
        if PAD >= 0:
            real = (there & (tl.load(ids + begin + token, mask=there, other=PAD) != PAD)).to(tl.int32)
            place = tl.where(real != 0, counted + tl.cumsum(real, 0), 0) + PAD
            counted += tl.sum(real, 0)
        tl.store(positions + begin + token, place, mask=there)
        tl.store(tile_query + tile, begin + block)
        tl.store(tile_begin + tile, begin)
        tl.store(tile_end + tile, begin + tokens)
        tile += 1


@triton.jit
def _norm_and_store(
    out, poison, mark, row_of, counts, values, seen, token, column, weight, bias, eps, width: tl.constexpr
):
    """LayerNorm of (B, W) float32 values and what every kernel does with a token that is not finite."""
    mean = tl.sum(values, 1) / width  # (B,)
    centred = tl.where(seen, values - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    gamma = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    beta = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
    normed = centred * scale[:, None] * gamma[None, :] + beta[None, :]
    normed = normed.to(out.dtype.element_ty)
    # x - x is 0 for a finite x only.
    broken = tl.max(tl.where(seen & ((normed - normed) != 0.0), 1, 0), 1)  # (B,)
    normed = tl.where(broken[:, None] != 0, 0.0, normed).to(out.dtype.element_ty)
    place = token.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(out + place, normed, mask=seen)
    marked = (broken != 0) & (token < tl.load(counts + 1))
    row = tl.load(row_of + token, mask=marked, other=0)
    tl.atomic_max(poison + row, tl.full(row.shape, 0, tl.int32) + mark, mask=marked, sem="relaxed")


@triton.jit(do_not_specialize=["mark"])
def add_and_norm(
    out, new, residual, weight, bias, poison, mark, row_of, counts, tokens, eps,
    width: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = LayerNorm(residual + new), the sum rounded as it is where it passes through memory."""
    follow(PDL)
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, WIDE)
    seen = (token < tokens)[:, None] & (column < width)[None, :]
    place = token.to(tl.int64)[:, None] * width + column[None, :]
    first = tl.load(residual + place, mask=seen, other=0.0)
    second = tl.load(new + place, mask=seen, other=0.0)
    total = (first.to(tl.float32) + second.to(tl.float32)).to(out.dtype.element_ty).to(tl.float32)
    _norm_and_store(out, poison, mark, row_of, counts, total, seen, token, column, weight, bias, eps, width)


@triton.jit(do_not_specialize=["mark"])
def embed(
    out, ids, types, positions, words, type_table, position_table, weight, bias, poison, mark, row_of, counts, tokens,
    eps, width: tl.constexpr, WIDE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Word, token type and position embeddings, added in this order, and their LayerNorm."""
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    real = token < tl.load(counts + 1)
    column = tl.arange(0, WIDE)
    seen = (token < tokens)[:, None] & (column < width)[None, :]
    word = tl.load(ids + token, mask=real, other=0).to(tl.int64)[:, None] * width
    kind = tl.load(types + token, mask=real, other=0).to(tl.int64)[:, None] * width
    place = tl.load(positions + token, mask=real, other=0).to(tl.int64)[:, None] * width
    total = tl.load(words + word + column[None, :], mask=seen, other=0.0).to(tl.float32)
    total += tl.load(type_table + kind + column[None, :], mask=seen, other=0.0).to(tl.float32)
    total = total.to(out.dtype.element_ty).to(tl.float32)
    total += tl.load(position_table + place + column[None, :], mask=seen, other=0.0).to(tl.float32)
    total = total.to(out.dtype.element_ty).to(tl.float32)
    _norm_and_store(out, poison, mark, row_of, counts, total, seen, token, column, weight, bias, eps, width)


@triton.jit
def attention(
    out, qkv, tile_query, tile_begin, tile_end, counts, scale,
    heads: tl.constexpr, width: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PROGRAMS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Every token attends to its own row: (T, 3 · heads · width) to (T, heads · width).

    A tile is up to QUERIES tokens of one row, from `tile_query` on; the row lies from `tile_begin` to `tile_end`. Keys
    are taken from the row's start: what a row gets is the same to the last bit wherever it lies.
    """
    follow(PDL)
    column = tl.arange(0, WIDE)
    inside = (column < width)[None, :]
    stride = 3 * heads * width
    lane = tl.arange(0, QUERIES)
    key_lane = tl.arange(0, KEYS)
    for item in range(tl.program_id(0), tl.load(counts + 2) * heads, PROGRAMS):
        tile = item // heads
        within = (item % heads) * width + column
        begin = tl.load(tile_begin + tile)
        end = tl.load(tile_end + tile)
        query = tl.load(tile_query + tile) + lane
        asked = (query < end)[:, None] & inside
        q = tl.load(qkv + query.to(tl.int64)[:, None] * stride + within[None, :], mask=asked, other=0.0)
        highest = tl.full([QUERIES], -1.0e30, tl.float32)
        total = tl.zeros([QUERIES], tl.float32)
        gathered = tl.zeros([QUERIES, WIDE], tl.float32)
        for block in range(begin, end, KEYS):
            key = block + key_lane
            there = (key < end)[:, None] & inside
            at = qkv + key.to(tl.int64)[:, None] * stride + within[None, :]
            k = tl.load(at + heads * width, mask=there, other=0.0)
            v = tl.load(at + 2 * heads * width, mask=there, other=0.0)
            score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
            score = tl.where((key < end)[None, :], score, -1.0e30)
            higher = tl.maximum(highest, tl.max(score, 1))
            shrink = tl.exp2(highest - higher)
            share = tl.exp2(score - higher[:, None])
            total = total * shrink + tl.sum(share, 1)
            gathered = tl.dot(share.to(v.dtype), v, gathered * shrink[:, None], input_precision=PRECISION)
            highest = higher
        tl.store(
            out + query.to(tl.int64)[:, None] * (heads * width) + within[None, :],
            (gathered / total[:, None]).to(out.dtype.element_ty),
            mask=asked,
        )


@triton.jit
def erf_complement(z):
    """erfc(z) for z ≥ 0, to 1.5e-7 (Abramowitz and Stegun 7.1.26): as near as float32 needs, without branches."""
    t = libdevice.fast_dividef(1.0, 1.0 + 0.3275911 * z)
    p = 1.061405429 * t - 1.453152027
    p = p * t + 1.421413741
    p = p * t - 0.284496736
    p = (p * t + 0.254829592) * t
    return p * tl.exp2(-1.4426950408889634 * z * z)


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """The activation of float32 values."""
    if ACTIVATION == "gelu":
        tail = erf_complement(tl.abs(x) * 0.7071067811865476)
        y = 0.5 * x * tl.where(x < 0, tail, 2.0 - tail)
    elif ACTIVATION == "gelu_tanh":
        y = 0.5 * x * (1 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    elif ACTIVATION == "relu":
        y = tl.maximum(x, 0.0)
    elif ACTIVATION == "tanh":
        y = libdevice.tanh(x)
    else:
        y = x
    return y


@triton.jit
def activate(values, size, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    """The activation in place, of `size` numbers."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(values + at, mask=at < size)
    tl.store(values + at, activated(x.to(tl.float32), ACTIVATION).to(x.dtype), mask=at < size)
