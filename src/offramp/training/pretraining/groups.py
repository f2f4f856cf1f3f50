"""Grouped training: which exits learn at which step."""

from __future__ import annotations

from offramp.errors import OfframpError


def exit_groups(exits: int, groups: int) -> tuple[tuple[int, ...], ...]:
    """Deal the exits (0-based) out to groups in turn; the last exit is in every group.

    Each step trains one group's exits, the groups taking turns, so a step pays for a part of the heads only. For 12
    exits and 2 groups these are ElasticBERT's: exits 1, 3, 5, 7, 9, 11, 12 and 2, 4, 6, 8, 10, 12.

    >>> exit_groups(5, 2)
    ((0, 2, 4), (1, 3, 4))
    """
    if not 1 <= groups <= max(1, exits - 1):
        most = max(1, exits - 1)
        raise OfframpError(f"{exits} exits can be dealt out to 1 to {most} groups, not {groups} (--groups)")
    last = exits - 1
    return tuple((*range(first, last, groups), last) for first in range(groups))


def group_at(step: int, groups: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """The exits that step number `step` (0-based) trains."""
    return groups[step % len(groups)]
