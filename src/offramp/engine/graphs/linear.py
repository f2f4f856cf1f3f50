# mypy: ignore-errors
"""y = activation(x Wᵀ + b) in Triton, summed in one order over the inputs whatever the number of rows."""

from __future__ import annotations

import triton
import triton.language as tl

from offramp.engine.graphs.following import follow
from offramp.engine.graphs.kernels import activated


@triton.jit
def linear(
    out, x, row_at, weight, bias, rows, columns, inputs,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr, PICK: tl.constexpr, PDL: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INPUTS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One (ROWS, COLUMNS) tile of the output: x (M, K), weight (N, K), out (M, N), all row by row.

    With PICK row m of x is row `row_at[m]` of what x points to.
    """
    follow(PDL)
    tile = tl.program_id(0)
    tall, wide = tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS)
    # Tiles that share rows of x run near each other, so that they find them in the cache.
    in_group = GROUP * wide
    group_first = (tile // in_group) * GROUP
    group_size = tl.minimum(tall - group_first, GROUP)
    m = (group_first + (tile % in_group) % group_size) * ROWS + tl.arange(0, ROWS)
    n = ((tile % in_group) // group_size) * COLUMNS + tl.arange(0, COLUMNS)
    k = tl.arange(0, INPUTS)
    row = m % rows
    if PICK:
        row = tl.load(row_at + row)
    x_at = x + row.to(tl.int64)[:, None] * inputs + k[None, :]
    w_at = weight + (n % columns).to(tl.int64)[:, None] * inputs + k[None, :]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for block in range(0, inputs, INPUTS):
        if EVEN:  # the inputs are a multiple of INPUTS
            a = tl.load(x_at)
            b = tl.load(w_at)
        else:
            a = tl.load(x_at, mask=(block + k < inputs)[None, :], other=0.0)
            b = tl.load(w_at, mask=(block + k < inputs)[None, :], other=0.0)
        total = tl.dot(a, tl.trans(b), total, input_precision=PRECISION)
        x_at += INPUTS
        w_at += INPUTS
    total += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
    # Rounded before the activation, as it is where it passes through memory.
    total = activated(total.to(out.dtype.element_ty).to(tl.float32), ACTIVATION)
    tl.store(
        out + m.to(tl.int64)[:, None] * columns + n[None, :],
        total.to(out.dtype.element_ty),
        mask=(m < rows)[:, None] & (n < columns)[None, :],
    )
