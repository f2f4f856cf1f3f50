"""Rules that compare one signal of the answer with a threshold; and thresholds that cover such a rule's whole range."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.policies.base import PerLayer, Policy, State, at_layer

POINTS = 41
"""Settings in a sweep: the saving grows by 1/40 from one to the next."""
NOISE = 2e-5
"""How far a signal can move when the same row is computed in another batch (float32)."""


@dataclass(frozen=True)
class Threshold(Policy):
    """Leave once the signal is below the threshold (or above it, where `above`)."""

    above: ClassVar[bool] = False

    threshold: PerLayer

    @abstractmethod
    def signal(self, logits: Tensor) -> Tensor:
        """The number to compare: (B, C), or (B, T, 2) for spans, to (B,)."""

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        signal, threshold = self.signal(logits), at_layer(self.threshold, layer)
        return signal > threshold if self.above else signal < threshold, None

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        rule = cls(0.0)
        return [cls(t) for t in spread_thresholds(signals_of(rule, exit_logits), exit_layers, above=cls.above)]


def signals_of(rule: Threshold, exit_logits: Tensor) -> Tensor:
    """The signal at every exit but the last, which takes everybody: (E, N, …) to (E-1, N)."""
    rows = [rule.signal(logits) for logits in exit_logits[:-1]]
    return torch.stack(rows) if rows else exit_logits.new_empty(0, exit_logits.shape[1])


def spread_thresholds(
    signals: Tensor, exit_layers: Sequence[int], above: bool = False, points: int = POINTS
) -> list[float]:
    """Thresholds from "nobody leaves early" to "everybody leaves at the first exit", about evenly spaced in cost.

    A sample has left by exit e if the smallest signal it showed so far, m[e], is below the threshold t. So

        layers saved = Σ_e (layer[e+1] - layer[e]) · [m[e] < t]

    and thresholds evenly spaced in cost are quantiles of m weighted with the layers each exit saves. Each threshold
    lies between two observed values, with as few decimals as there is room for.
    """
    if not signals.numel():
        return []
    if above:
        return [0.0 - threshold for threshold in spread_thresholds(-signals, exit_layers, points=points)]
    smallest = (
        signals.double().nan_to_num(math.inf, math.inf, -math.inf).cummin(0).values.cpu().numpy()
    )  # NaN never leaves
    saves = np.maximum(np.diff(exit_layers), 1e-3)  # two exits after one layer differ in their answers only
    values, place = np.unique(smallest, return_inverse=True)  # ascending
    weights = np.bincount(place.ravel(), np.broadcast_to(saves[:, None], smallest.shape).ravel())
    values, weights = values[np.isfinite(values)], weights[np.isfinite(values)]
    if not len(values):
        return []
    share = np.append(0.0, weights.cumsum() / weights.sum())  # share[j]: saved where t is above j of the values
    return [math.floor(values[0]), *_between(values, share, points), math.floor(values[-1]) + 1]


def _between(values: NDArray[np.float64], share: NDArray[np.float64], points: int) -> list[float]:
    """One threshold for each inner multiple of 1/(points - 1) that the saved share comes near to."""
    step = 1 / (points - 1)
    chosen = []
    for wanted in np.arange(1, points - 1) * step:
        first, end = np.searchsorted(share, [wanted - step / 3, wanted + step / 3])
        # A threshold above j of the values, so between values[j - 1] and values[j].
        above = [j for j in range(first, end) if 0 < j < len(values)]
        if above:
            chosen.append(_few_decimals(values[above[0] - 1 : above[-1] + 1]))
    return chosen


def _few_decimals(values: NDArray[np.float64]) -> float:
    """The number with the fewest decimals between the first and the last value that is not too near to any."""
    widest = int(np.diff(values).argmax())
    middle = float(values[widest : widest + 2].mean())
    room = min(NOISE, float(np.diff(values).max()) / 4)
    for decimals in range(1, 16):
        rounded = round(middle, decimals)
        for number in (rounded, round(rounded - 10**-decimals, decimals), round(rounded + 10**-decimals, decimals)):
            if values[0] < number < values[-1] and np.abs(values - number).min() >= room:
                return number
    return middle
