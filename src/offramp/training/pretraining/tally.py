"""The losses of every exit since the last look, added up where they were computed: reading them would wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from offramp.training.pretraining.model import LOSSES


class Tally:
    """Exits of different groups are trained at different steps, and asked different things: each has its own count."""

    def __init__(self, exits: int, kinds: Sequence[str], device: torch.device) -> None:
        self.kinds = kinds
        self.sums = torch.zeros(exits, len(LOSSES), device=device)
        self.counts = [[0] * len(LOSSES) for _ in range(exits)]

    def add(self, exits: Sequence[int], losses: Tensor, asked: Sequence[str]) -> None:
        """`asked`: the kinds of losses that this step had."""
        self.sums[list(exits)] += losses
        for exit in exits:
            for place, kind in enumerate(LOSSES):
                self.counts[exit][place] += kind in asked

    def means(self) -> dict[str, list[float | None]]:
        """The mean loss of each exit, None for one that was not asked; and start anew."""
        sums, counts = self.sums.tolist(), self.counts
        self.sums.zero_()
        self.counts = [[0] * len(LOSSES) for _ in counts]
        means = {
            kind: [
                round(each[place] / count[place], 5) if count[place] else None
                for each, count in zip(sums, counts, strict=True)
            ]
            for place, kind in enumerate(LOSSES)
        }
        return {kind: losses for kind, losses in means.items() if kind in self.kinds}
