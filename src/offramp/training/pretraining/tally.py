"""The losses of every exit since the last look, added up where they were computed: reading them would wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Tally:
    """Exits of different groups are trained at different steps: each has its own count."""

    def __init__(self, exits: int, device: torch.device) -> None:
        self.sums = torch.zeros(exits, 2, device=device)
        self.counts = [0] * exits

    def add(self, exits: Sequence[int], losses: Tensor) -> None:
        self.sums[list(exits)] += losses
        for exit in exits:
            self.counts[exit] += 1

    def means(self) -> dict[str, list[float]]:
        """The mean loss of each exit (NaN-free: an exit that was never asked has 0), and start anew."""
        counts = torch.tensor(self.counts).clamp(min=1)[:, None]
        means = (self.sums.cpu() / counts).tolist()
        self.sums.zero_()
        self.counts = [0] * len(self.counts)
        words, order = [round(pair[0], 5) for pair in means], [round(pair[1], 5) for pair in means]
        return {"words": words} | ({"order": order} if any(order) else {})
