"""What an exit pattern costs, counted in layers as the papers count it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def exit_counts(exit_layer: ArrayLike, depth: int) -> dict[int, int]:
    """How many samples left after each layer 1 … depth."""
    counts = np.bincount(np.asarray(exit_layer, dtype=int), minlength=depth + 1)
    return {layer: int(counts[layer]) for layer in range(1, depth + 1)}


def cost_ratio(exit_layer: ArrayLike, depth: int) -> float:
    """Mean executed layers over all layers: ELBERT's computation cost, DeeBERT's printed "expected saving"."""
    return float(np.mean(np.asarray(exit_layer)) / depth)


def expected_saving(exit_layer: ArrayLike, depth: int) -> float:
    """1 - cost ratio: what DeeBERT's paper calls expected saving."""
    return 1.0 - cost_ratio(exit_layer, depth)


def speed_up(exit_layer: ArrayLike, depth: int) -> float:
    """All layers over mean executed layers (ElasticBERT). A ratio of layers, not of time."""
    return 1.0 / cost_ratio(exit_layer, depth)
