"""What can be chosen about a quickstart."""

from __future__ import annotations

from dataclasses import dataclass

BACKBONE = "offramp-mini"
ROWS = 4000
EPOCHS = 2


@dataclass(frozen=True)
class Wishes:
    """The settings of a quickstart, with those that fit two cores and two minutes."""

    backbone: str = BACKBONE
    rows: int = ROWS
    """To train on; of a user's own data, at most so many in each part."""
    epochs: int = EPOCHS
    learning_rate: float | None = None
    """Its peak; None: by the width of the backbone."""
    seed: int = 1
