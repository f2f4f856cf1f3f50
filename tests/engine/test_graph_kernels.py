"""Kernels of CUDA graphs by themselves: rows that are not finite, and who fits where rows move to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from offramp.engine.graphs.memory import NEVER_FINITE
from tests.engine.on_device import DEVICE, needs_device

WIDTH = 8
ROW_OF = (0, 0, 1, 1, 2, 2)
ROWS = 64

pytestmark = needs_device


def whole(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


def test_an_exit_heeds_what_broke_before_it_and_nothing_later() -> None:
    """It may be asked while later layers run, and they mark rows, too."""
    from offramp.engine.graphs import exit_kernels, kernels

    tokens, rows = len(ROW_OF), 3
    poison, counts = whole(0, 0, 0), whole(rows, tokens, 0, 0)
    normed, residual = (torch.randn(tokens, WIDTH, device=DEVICE) for _ in range(2))
    ones, zeros = torch.ones(WIDTH, device=DEVICE), torch.zeros(WIDTH, device=DEVICE)

    def add_and_norm(layer: int, broken: tuple[int, ...]) -> None:
        new = torch.randn(tokens, WIDTH, device=DEVICE)
        new[list(broken), 3] = float("inf")
        kernels.add_and_norm[(tokens,)](
            normed, new, residual, ones, zeros, poison, NEVER_FINITE - layer, whole(*ROW_OF), counts, tokens, 1e-5,
            width=WIDTH, WIDE=WIDTH, TOKENS=1, PDL=False,
        )  # fmt: skip

    def fails_at(layer: int) -> list[bool]:
        logits = torch.zeros(rows, 2, device=DEVICE)
        exit_kernels.classify[(rows,)](
            logits, torch.randn(rows, WIDTH, device=DEVICE), torch.randn(2, WIDTH, device=DEVICE), zeros[:2], poison,
            NEVER_FINITE - layer, 2, width=WIDTH, WIDE=WIDTH,
        )  # fmt: skip
        return logits.isnan().any(1).tolist()

    add_and_norm(3, broken=(2,))
    add_and_norm(5, broken=(2, 4))
    assert normed.isfinite().all()
    assert [fails_at(layer) for layer in (2, 3, 4)] == [[False] * 3, *[[False, True, False]] * 2]
    assert fails_at(5) == [False, True, True]


@pytest.mark.parametrize("seed", range(20))
def test_rows_move_in_order_until_one_does_not_fit(seed: int) -> None:
    from offramp.engine.graphs import exit_kernels

    draw = np.random.default_rng(seed)
    count, room = int(draw.integers(0, ROWS + 1)), int(draw.integers(0, 900))
    lengths = np.zeros(ROWS, np.int32)
    lengths[:count] = draw.integers(1, 60, count)
    left = draw.random(ROWS) < 0.4
    exits, poison = whole(*np.where(left, 3, -1)), whole(*draw.integers(0, 2, ROWS))
    next_exits, start, length, marks, row, new_start, tile = torch.zeros(7, ROWS, dtype=torch.int32, device=DEVICE)
    counts = whole(7, 7, 7, 7)
    exit_kernels.gather_who_stay[(1,)](
        exits, whole(count, int(lengths.sum()), 0, 0), whole(*lengths), poison,
        next_exits, counts, start, length, marks, row, new_start, tile, room, ROWS=ROWS, TILE=16,
    )  # fmt: skip
    staying = np.flatnonzero(~left[:count])
    who = staying[np.cumsum(lengths[staying]) <= room]
    assert counts[:3].tolist() == [len(who), lengths[who].sum(), sum(-(-lengths[who] // 16))]
    assert row.cpu().numpy()[who].tolist() == list(range(len(who)))
    assert int((row >= 0).sum()) == len(who)
    assert length[: len(who)].tolist() == lengths[who].tolist()
    assert marks[: len(who)].tolist() == poison.cpu().numpy()[who].tolist()
    assert bool((next_exits == -1).all())
