"""Which units of a layer (heads, or chunks of neurons) to compute as one slice, for one input or rows of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Run = tuple[int, int]
"""First unit, and the one after the last."""

START = 3_000_000
"""What beginning another slice costs, in multiply-adds that could be done instead (measured, docs/log.md)."""
FEW_TOKENS = 32
"""Fewer tokens than these cost hardly less: the weights have to be read all the same."""
PICKED = 1.2
"""What a row costs when it is picked out of a batch and added back, against one that is computed with all others."""


class Part(NamedTuple):
    """Neighbouring units that the same rows of a batch are computed for."""

    first: int
    last: int
    rows: list[int] | None
    """None: all rows, and what a row does not keep is masked."""


def runs(kept: list[bool], gap: int = 0) -> list[Run]:
    """Neighbouring units that are kept, and may be `gap` units apart."""
    found: list[Run] = []
    for unit, keep in enumerate(kept):
        if keep:
            joins = found and unit - found[-1][1] <= gap
            first = found.pop()[0] if joins else unit
            found.append((first, unit + 1))
    return found


def widest_gap(unit: int, tokens: int) -> int:
    """Units that are cheaper computed and masked than left out between two slices; one takes `unit` multiply-adds."""
    return START // (unit * max(tokens, FEW_TOKENS))


def parts_of(kept: Flags, unit: int, tokens: int) -> list[Part]:
    """Units (B, units) that few rows keep are computed for those rows; those that most keep for all rows at once."""
    batch = len(kept)
    count = kept.sum(0)
    few = (PICKED * count * tokens * unit + 2 * START < batch * tokens * unit) & (count > 0)
    everyone = runs(((count > 0) & ~few).tolist(), widest_gap(unit, batch * tokens))
    for first, last in everyone:
        few[first:last] = False  # inside a gap they are computed anyway
    found = [Part(first, last, None) for first, last in everyone]
    for one in np.flatnonzero(few).tolist():
        before = found[-1] if found else None
        rows = np.flatnonzero(kept[:, one]).tolist()
        if before is not None and before.last == one and before.rows == rows:
            found[-1] = Part(before.first, one + 1, rows)
        else:
            found.append(Part(one, one + 1, rows))
    return found
