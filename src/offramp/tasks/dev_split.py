"""Cut a dev split off the training rows: the same rows on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence

from offramp.errors import OfframpError


def cut_dev(labels: Sequence[str] | None, rows: int, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Row numbers for training and for dev, in order, each label in proportion. Every label keeps a training row.

    Rows are shuffled, laid out label by label, and picked at even distances.
    """
    order = list(range(rows))
    random.Random(seed).shuffle(order)
    groups: dict[str, list[int]] = {}
    for row in order:
        groups.setdefault(labels[row] if labels is not None else "", []).append(row)
    movable = [row for label in sorted(groups) for row in groups[label][1:]]
    if not 0 < size <= len(movable):
        raise OfframpError(
            f"{size} dev rows cannot be cut off {rows} rows with {len(groups)} labels, which each keep one: "
            "give a dev file (--dev)"
        )
    dev = {movable[(2 * i + 1) * len(movable) // (2 * size)] for i in range(size)}
    return [row for row in range(rows) if row not in dev], sorted(dev)
