"""What a stage, and asking its exits, costs on this device: decides when rows are worth running and worth moving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from offramp.engine.graphs.sizes import ROWS, fitting
from offramp.engine.graphs.stages import Move

if TYPE_CHECKING:
    from offramp.engine.graphs.programs import Programs

REPEATS = 5
NEAR = 1.05
"""A token may cost so much more than in a full batch before its stage waits for company."""


@dataclass(frozen=True)
class Costs:
    stages: dict[int, float]
    """Seconds that a stage takes, by its tokens, each twice the one before."""
    asking: float
    """Seconds from the end of a stage until the host can launch the next on those who stay."""
    moving: float
    """Seconds in which the device moves those who stay in a lane to the next."""

    def worth(self, budget: int) -> int:
        """Tokens from which on a stage costs nearly in proportion to them; three quarters of the budget always do."""
        of_token = {tokens: seconds / tokens for tokens, seconds in self.stages.items()}
        full = min(of_token.values())
        return min(min(tokens for tokens, each in of_token.items() if each <= NEAR * full), budget * 3 // 4)

    def few(self) -> int:
        """Tokens up to which a stage without half of them saves less time than moving the others costs."""
        few = min(self.stages)
        for (_, half), (tokens, whole) in pairwise(sorted(self.stages.items())):
            if whole - half > self.asking:
                break
            few = tokens
        return few


def measure(programs: Programs, budget: int) -> Costs:
    """Run stages on no rows at all: products and norms do not depend on how many of a bucket's tokens are real."""
    sizes = [64]
    while sizes[-1] * 2 <= budget:
        sizes.append(sizes[-1] * 2)
    stage = len(programs.stages) // 2
    stages = {
        size: _seconds(programs, partial(programs.layers, stage, fitting(programs.token_sizes, size))) for size in sizes
    }
    asking = []
    for _ in range(REPEATS + 1):
        begin = perf_counter()
        programs.exit(stage, ROWS[0])
        programs.slots[stage].wait(programs.slots[stage].expected)
        asking.append(perf_counter() - begin)
    nowhere = Move(stage, programs.token_sizes[0])
    return Costs(stages, median(asking[1:]), _seconds(programs, partial(programs.gather, nowhere, ROWS[0], 0, 1)))


def _seconds(programs: Programs, launch: Callable[[], None]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    launch()
    begin.record(programs.stream)
    for _ in range(REPEATS):
        launch()
    end.record(programs.stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) / REPEATS / 1e3
