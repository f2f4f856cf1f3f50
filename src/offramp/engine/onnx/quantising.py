"""Weights in int8: one scale for each output, symmetric."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from offramp.errors import OfframpError

LARGEST = 127
LARGEST_HALVED = 63
"""Without VNNI a processor adds two products in 16 bits, which overflow with the full range."""


def quantise(weight: NDArray[np.float32], largest: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """A matrix (inputs, outputs) as q · scale, q within ±largest; the scale of a column of zeros is 1."""
    if not np.isfinite(weight).all():
        raise OfframpError("a weight of a layer is NaN or infinite: rounded to int8 it would look like a number")
    scale = np.abs(weight).max(0) / largest
    scale = np.where(scale > 0, scale, 1.0).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale
