"""What every way of running a model under a policy looks like to the engine: rows go in, finished rows come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NO_EXIT = -1
"""Where an exit's number stands and none is meant."""


@dataclass(frozen=True)
class Packed:
    """Rows end to end, without padding."""

    tickets: NDArray[np.int64]  # (R,) the number of each row, given out once
    lengths: NDArray[np.int64]  # (R,) tokens of each row, 1 or more
    input_ids: NDArray[np.int64]  # (T,)
    token_type_ids: NDArray[np.int64] | None = None  # (T,)

    def __len__(self) -> int:
        return len(self.tickets)


@dataclass(frozen=True)
class Finished:
    """Rows that have left, in any order."""

    tickets: NDArray[np.int64]  # (n,)
    exits: NDArray[np.int64]  # (n,) 0-based
    logits: Sequence[NDArray[np.float32]]
    """What each row left with: (C,), or (T, 2) for spans; of a recording runner every exit's: (E, C) or (E, T, 2)."""

    def __len__(self) -> int:
        return len(self.tickets)


class Runner(ABC):
    """Runs rows through the layers, and lets each leave where the policy says so.

    A recording runner asks every exit about every row, and none leaves before the last.
    """

    @abstractmethod
    def submit(self, rows: Packed) -> list[Finished]:
        """Take rows; return those that have finished, of these or of earlier ones. Others may be held back."""

    @abstractmethod
    def flush(self) -> list[Finished]:
        """Finish every row that is held back."""

    @abstractmethod
    def drop(self) -> None:
        """Forget every row, finished or not, wherever it was interrupted."""
