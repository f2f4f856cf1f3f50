"""Cut a dev split off the training rows: the same rows on every machine."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

from offramp.errors import OfframpError


def cut_dev(
    labels: Sequence[str] | None, rows: int, size: int, seed: int, texts: Sequence[Hashable] | None = None
) -> tuple[list[int], list[int]]:
    """Row numbers for training and for dev, in order, each label in proportion. Every label keeps a training row.

    Rows are shuffled, laid out label by label, and picked at even distances. With `texts`, rows of the same text go
    together, or dev would ask what was learnt by heart: so many texts are picked that about `size` rows come with them.
    """
    together: dict[Hashable, list[int]] = {}
    for row in range(rows):
        together.setdefault(row if texts is None else texts[row], []).append(row)
    picked_from = list(together.values())
    wanted = size if len(picked_from) == rows else max(1, round(size * len(picked_from) / rows))
    random.Random(seed).shuffle(picked_from)
    groups: dict[str, list[list[int]]] = {}
    known: set[str] = set()
    for same in picked_from:
        found = {labels[row] if labels is not None else "" for row in same}
        group = groups.setdefault(labels[same[0]] if labels is not None else "", [])
        if found <= known:
            group.append(same)
        known |= found  # what is the first of a label is trained on
    movable = [same for label in sorted(groups) for same in groups[label]]
    if not 0 < wanted <= len(movable):
        of_texts = "" if len(picked_from) == rows else f" of {len(picked_from)} different texts"
        raise OfframpError(
            f"{size} dev rows cannot be cut off {rows} rows{of_texts} with {len(known)} labels, which each keep one: "
            "give a dev file (--dev)"
        )
    dev = {row for i in range(wanted) for row in movable[(2 * i + 1) * len(movable) // (2 * wanted)]}
    return [row for row in range(rows) if row not in dev], sorted(dev)
