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
FEWER_ROWS = 1_500_000
"""What beginning another tile of a batch costs, in multiply-adds."""


class Tile(NamedTuple):
    """Neighbouring units that neighbouring rows of a batch are computed for."""

    first: int
    last: int
    first_row: int
    last_row: int

    @property
    def units(self) -> int:
        return self.last - self.first

    @property
    def rows(self) -> int:
        return self.last_row - self.first_row

    def place(self, width: int) -> slice:
        """Where the units' outputs are, each `width` wide."""
        return slice(self.first * width, self.last * width)

    def of(self, kept: Flags) -> Flags:
        """The tile's part of (B, units, …)."""
        return np.asarray(kept[self.first_row : self.last_row, self.first : self.last])


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


def tiles_of(kept: Flags, unit: int, tokens: int) -> list[Tile]:
    """What is kept of (B, units), in tiles; one unit takes `unit` multiply-adds a token.

    Neighbouring units that the same rows keep are taken together. Rows between two tiles are computed and masked where
    that costs less than another tile.
    """
    if not kept.shape[1]:
        return []
    changes = np.flatnonzero((kept[:, 1:] != kept[:, :-1]).any(0)) + 1
    found = []
    for first, last in zip([0, *changes.tolist()], [*changes.tolist(), kept.shape[1]], strict=True):
        gap = FEWER_ROWS // max(1, (last - first) * unit * tokens)
        found += [Tile(first, last, *rows) for rows in runs(kept[:, first].tolist(), gap)]
    return found
