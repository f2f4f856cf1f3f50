"""The losses of every exit since the last look, added up where they were computed: reading them would wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from offramp.training.pretraining.model import LOSSES


class Tally:
    """Exits of different groups are trained at different steps: each has its own count."""

    def __init__(self, exits: int, kinds: Sequence[str], device: torch.device) -> None:
        self.kinds = kinds
        self.sums = torch.zeros(exits, len(LOSSES), device=device)
        self.counts = [0] * exits

    def add(self, exits: Sequence[int], losses: Tensor) -> None:
        self.sums[list(exits)] += losses
        for exit in exits:
            self.counts[exit] += 1

    def means(self) -> dict[str, list[float | None]]:
        """The mean loss of each exit, None for one that was not asked; and start anew."""
        sums, counts = self.sums.tolist(), self.counts
        self.sums.zero_()
        self.counts = [0] * len(counts)
        means = {
            kind: [round(each[place] / count, 5) if count else None for each, count in zip(sums, counts, strict=True)]
            for place, kind in enumerate(LOSSES)
        }
        return {kind: losses for kind, losses in means.items() if kind in self.kinds}
