"""Sizes that graphs are captured for: tokens and rows are filled up to the next one."""

from __future__ import annotations

from bisect import bisect_left

TILE, KEYS = 16, 16
"""Queries of one program of attention, and keys it takes at a time."""
ROWS = (64, 256, 1024, 4096)
"""Powers of two, for one program has to hold them all."""


def token_sizes(most: int) -> tuple[int, ...]:
    """Close enough that filling up costs little: a few per cent above 1k."""
    sizes = [32, 64, 128, 256, 384, 512]
    for up_to, step in ((2048, 128), (8192, 256), (most, 512)):
        while sizes[-1] < up_to:
            sizes.append(sizes[-1] + step)
    return tuple(sizes)


def fitting(sizes: tuple[int, ...], needed: int) -> int:
    """The smallest size that is large enough."""
    return sizes[bisect_left(sizes, needed)]


def warps_of(rows: int) -> int:
    """Of a kernel whose one program holds all rows."""
    return min(8, max(1, rows // 64))


def most_tiles(tokens: int, rows: int) -> int:
    """Every row ends in a tile that may be part empty."""
    return min(tokens, rows) + tokens // TILE
