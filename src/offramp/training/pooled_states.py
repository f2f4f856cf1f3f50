"""What the exits of a frozen model look at, computed once: every epoch after that costs the heads alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row, TextEncoder

IN_MEMORY = 2**30
"""Bytes; what is larger lies in a file."""
TOKENS_TOGETHER = 2048
"""In a batch, padding included."""
ROWS_TOGETHER = 1024
"""That heads are asked about."""


@dataclass(frozen=True)
class PooledStates:
    """Of every row, in order: the pooled output of each early exit's layer, and the last exit's logits."""

    states: NDArray[np.float32]
    """(N, exits below the last, H)"""
    last: NDArray[np.float32]
    """(N, C)"""

    def __len__(self) -> int:
        return len(self.last)


@torch.no_grad()
def pooled_states(
    model: MultiExitModel,
    rows: Sequence[Row],
    encoder: TextEncoder,
    spill: Path,
    on_rows: Callable[[int, int], None] | None = None,
) -> PooledStates:
    """One pass over the rows, as the model is when it answers. Too much for the memory lies in the file `spill`."""
    early = range(len(model.exits) - 1)
    states = room_for((len(rows), len(early), model.backbone.hidden_size), spill)
    last = np.empty((len(rows), model.outputs), np.float32)
    device, done = model.device, 0
    model.eval()
    for numbers in batches_by_length([len(row) for row in rows]):
        batch: dict[str, Any] = {
            name: values.to(device) for name, values in encoder.pad([rows[n] for n in numbers]).items()
        }
        passed = model.run(**batch, exits=[len(early)])  # the last alone: the others have not learnt yet
        marks, layers = batch["attention_mask"], model.exits.layers
        seen = [model.exits.pool(exit, passed.states[layers[exit]], marks) for exit in early]
        states[numbers] = torch.stack(seen, 1).float().cpu().numpy()
        last[numbers] = passed.logits[-1].float().cpu().numpy()
        done += len(numbers)
        if on_rows is not None:
            on_rows(done, len(rows))
    return PooledStates(states, last)


@torch.no_grad()
def logits_of(model: MultiExitModel, seen: PooledStates) -> NDArray[np.float32]:
    """What every exit says, first to last: (E, N, C)."""
    logits = np.empty((len(model.exits), *seen.last.shape), np.float32)
    for start in range(0, len(seen), ROWS_TOGETHER):
        part = slice(start, start + ROWS_TOGETHER)
        states = torch.from_numpy(np.array(seen.states[part])).to(model.device)
        for exit in range(states.shape[1]):
            logits[exit, part] = model.exits.head(exit, states[:, exit]).float().cpu().numpy()
    logits[-1] = seen.last
    return logits


def room_for(shape: tuple[int, ...], spill: Path) -> NDArray[np.float32]:
    """In memory or, where that is too much, in a file."""
    size = 4 * int(np.prod(shape))
    if size <= IN_MEMORY:
        return np.empty(shape, np.float32)
    free = shutil.disk_usage(spill.parent).free
    if size > free:
        raise OfframpError(
            f"what the exits see of {shape[0]:,} rows takes {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in "
            f"{spill.parent.parent}: give fewer rows"
        )
    return np.memmap(spill, np.float32, "w+", shape=shape)


def batches_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Row numbers, the longest rows first: if memory runs out, at once."""
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > TOKENS_TOGETHER:
            batches.append([])
        batches[-1].append(number)
    return batches
