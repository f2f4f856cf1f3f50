"""One layer, or the embeddings, over packed rows: kernels put on the current stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from offramp.engine.graphs import kernels
from offramp.engine.graphs.following import FOLLOWING
from offramp.engine.graphs.linear import linear
from offramp.engine.graphs.memory import NEVER_FINITE, Intake, Rows, Scratch
from offramp.engine.graphs.sizes import KEYS, ROWS, TILE, fitting, most_tiles, warps_of
from offramp.engine.graphs.weights import EmbeddingWeights, LayerWeights, Linear, Norm

FEW, SOME = 128, 1024
"""Up to FEW rows our own product is as fast as the library's, and takes the activation along; above SOME its tiles are
larger."""
OTHER_PROGRAMS_FROM = (1, FEW + 1, SOME + 1)
"""Tokens from which on a layer runs other programs than before."""
PROGRAMS = 16
"""Programs of attention for each multiprocessor."""


class Products:
    """y = activation(x Wᵀ + b), summed in the same order whatever the number of rows.

    The library's products are faster for many rows. It may split the sum for some sizes, and then a row's numbers
    would depend on its company: so the library is asked only at sizes where, tried once, it agreed with ours to the
    last bit. (Of float32 products, where the difference is below what any policy looks at, it does all.)
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._agrees: dict[tuple[int, int, int], bool] = {}

    def __call__(self, layer: Linear, x: Tensor, out: Tensor, activation: str | None = None) -> None:
        if self.by_library(layer, len(x)):
            torch.addmm(layer.bias, x, layer.weight.t(), out=out)
            if activation is not None:
                activate(out, activation)
        else:
            own_product(layer, x, out, activation)

    def by_library(self, layer: Linear, rows: int) -> bool:
        if self.dtype == torch.float32:
            return True
        return self._agrees.get((rows, *layer.weight.shape), False)

    def try_out(self, layers: Sequence[Linear], sizes: Sequence[int]) -> None:
        """Compare both on random numbers, for every number of rows in `sizes`."""
        if self.dtype == torch.float32:
            return
        shapes = {tuple(layer.weight.shape): layer for layer in layers}
        device, most = layers[0].weight.device, max(sizes)
        x = torch.randn(most * max(inputs for _, inputs in shapes), dtype=self.dtype, device=device)
        one, other = (torch.empty(most * max(shapes)[0], dtype=self.dtype, device=device) for _ in range(2))
        for (outputs, inputs), layer in shapes.items():
            for rows in sorted(sizes, reverse=True):  # what is free after a large one is enough for a smaller one
                if rows > FEW:
                    some = x[: rows * inputs].view(rows, inputs)
                    ours, theirs = (memory[: rows * outputs].view(rows, outputs) for memory in (one, other))
                    own_product(layer, some, ours, None)
                    torch.addmm(layer.bias, some, layer.weight.t(), out=theirs)
                    self._agrees[rows, outputs, inputs] = torch.equal(ours, theirs)


def own_product(layer: Linear, x: Tensor, out: Tensor, activation: str | None, row_at: Tensor | None = None) -> None:
    """With `row_at` (M,) of those rows of x, and no others."""
    rows, (columns, inputs) = len(out), layer.weight.shape
    if x.dtype == torch.float32:
        shape = (32, 32, 32, 4, 2)
    elif rows <= FEW:
        shape = (64, 32, 128, 4, 4) if inputs < 2048 else (64, 16, 256, 4, 3)
    else:
        shape = (64, 64, 64, 4, 5) if rows <= SOME else (64, 128, 64, 4, 4)
    tall, wide, deep, warps, stages = shape
    linear[(triton.cdiv(rows, tall) * triton.cdiv(columns, wide),)](
        out, x, x if row_at is None else row_at, layer.weight, layer.bias, rows, columns, inputs,
        ACTIVATION=activation, PRECISION="ieee", EVEN=inputs % deep == 0, PICK=row_at is not None,
        ROWS=tall, COLUMNS=wide, INPUTS=deep, GROUP=8, num_warps=warps, num_stages=stages, **FOLLOWING,
    )  # fmt: skip


def activate(values: Tensor, activation: str) -> None:
    block = 2048
    kernels.activate[(triton.cdiv(values.numel(), block),)](
        values, values.numel(), ACTIVATION=activation, BLOCK=block, num_warps=4
    )


def norm_shape(width: int) -> dict[str, Any]:
    return {"width": width, "WIDE": triton.next_power_of_2(width), "TOKENS": 1, "num_warps": 1 if width <= 1024 else 4}


class Layers:
    """Runs layers in one scratch memory."""

    def __init__(self, products: Products, scratch: Scratch, device: torch.device) -> None:
        self.products = products
        self.scratch = scratch
        self.programs = PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count

    def embed(self, weights: EmbeddingWeights, intake: Intake, hidden: Tensor) -> None:
        """Token ids to the first layer's input (T, H)."""
        tokens, width = len(hidden), weights.words.shape[1]
        rows = self._lay(intake, tokens, -1 if weights.pad is None else weights.pad)
        out = hidden if weights.mapping is None else self.scratch("embedded", tokens, width)
        ids, types = intake.tokens(tokens)
        kernels.embed[(tokens,)](
            out, ids, types, intake.positions, weights.words, weights.types, weights.positions,
            weights.norm.weight, weights.norm.bias, rows.poison, NEVER_FINITE, rows.row_of, rows.counts, tokens,
            weights.norm.eps,
            **norm_shape(width),
        )  # fmt: skip
        if weights.mapping is not None:
            self.products(weights.mapping, out, hidden)

    @staticmethod
    def _lay(intake: Intake, tokens: int, pad: int) -> Rows:
        """Find out where the rows that came in lie."""
        rows, most = intake.rows, fitting(ROWS, intake.most_rows(tokens))
        rows.poison.zero_()
        kernels.number_rows[(1,)](
            rows.counts, rows.length, rows.start, intake.first_tile, ROWS=most, TILE=TILE, num_warps=warps_of(most)
        )
        kernels.lay_rows[(most,)](
            rows.counts, rows.length, rows.start, intake.first_tile, intake.tokens(tokens)[0], rows.row_of,
            intake.positions, rows.tile_query, rows.tile_begin, rows.tile_end, PAD=pad, TILE=TILE, num_warps=1,
        )  # fmt: skip
        return rows

    def layer(
        self,
        number: int,
        weights: LayerWeights,
        hidden: Tensor,
        rows: Rows,
        out: Tensor,
        beside: Callable[[], None] | None = None,
    ) -> None:
        """Layer `number` (1-based), (T, H) to (T, H); `out` may be `hidden`.

        What is done `beside` it disturbs attention least.
        """
        tokens, width = hidden.shape
        inner = weights.heads * weights.head_width
        qkv, context = self.scratch("qkv", tokens, 3 * inner), self.scratch("context", tokens, inner)
        new, middle = self.scratch("new", tokens, width), self.scratch("middle", tokens, width)
        neurons = self.scratch("neurons", tokens, len(weights.neurons.weight))
        self.products(weights.qkv, hidden, qkv)
        if beside is not None:
            beside()
        self._attention(weights, qkv, context, rows)
        self.products(weights.attended, context, new)
        self._add_and_norm(number, weights.attended_norm, new, hidden, rows, middle)
        if isinstance(weights.activation, str):
            self.products(weights.neurons, middle, neurons, weights.activation)
        else:
            self.products(weights.neurons, middle, neurons)
            neurons = weights.activation(neurons)
        self.products(weights.summed, neurons, new)
        self._add_and_norm(number, weights.summed_norm, new, middle, rows, out)

    def _attention(self, weights: LayerWeights, qkv: Tensor, context: Tensor, rows: Rows) -> None:
        items = most_tiles(len(qkv), len(rows.start)) * weights.heads
        kernels.attention[(min(items, self.programs),)](
            context, qkv, rows.tile_query, rows.tile_begin, rows.tile_end, rows.counts,
            math.log2(math.e) / math.sqrt(weights.head_width),
            heads=weights.heads, width=weights.head_width, WIDE=max(16, triton.next_power_of_2(weights.head_width)),
            PRECISION="ieee", QUERIES=TILE, KEYS=KEYS, PROGRAMS=self.programs, num_warps=1, num_stages=3,
            **FOLLOWING,
        )  # fmt: skip

    @staticmethod
    def _add_and_norm(number: int, norm: Norm, new: Tensor, residual: Tensor, rows: Rows, out: Tensor) -> None:
        tokens, width = new.shape
        kernels.add_and_norm[(tokens,)](
            out, new, residual, norm.weight, norm.bias, rows.poison, NEVER_FINITE - number, rows.row_of, rows.counts,
            tokens, norm.eps, **norm_shape(width), **FOLLOWING,
        )  # fmt: skip
