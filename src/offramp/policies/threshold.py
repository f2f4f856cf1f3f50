"""Rules that compare one signal of the answer with a threshold; and thresholds that cover such a rule's whole range."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import PerLayer, Policy, State, at_layer

POINTS = 41
"""Settings in a sweep: the saving grows by 1/40 from one to the next."""
NOISE = 2e-5
"""How far a signal can move when the same row is computed in another batch (float32)."""


@dataclass(frozen=True)
class Threshold(Policy):
    """Leave once the signal is below the threshold (or above it, where `above`).

    Logits are divided by the temperature first, so that one threshold can mean the same at exits that are more and less
    sure of themselves than they are right.
    """

    above: ClassVar[bool] = False

    threshold: PerLayer
    temperature: PerLayer = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        temperatures = self.temperature if isinstance(self.temperature, tuple) else (self.temperature,)
        if not all(temperature > 0 for temperature in temperatures):
            raise OfframpError(f"{self.name}: a temperature must be more than 0, not {self.temperature}")

    @abstractmethod
    def signal(self, logits: Tensor) -> Tensor:
        """The number to compare: (B, C), or (B, T, 2) for spans, to (B,)."""

    def signal_at(self, layer: int, logits: Tensor) -> Tensor:
        """The same with the temperature of a layer (1-based)."""
        return self.signal(cooled(logits, at_layer(self.temperature, layer)))

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        return self.passes(self.signal_at(layer, logits), layer), None

    def passes(self, signal: Tensor, layer: int) -> Tensor:
        """Which rows are past the threshold of this layer."""
        threshold = at_layer(self.threshold, layer)
        return signal > threshold if self.above else signal < threshold

    def first_exit(self, signals: Tensor, exit_layers: Sequence[int]) -> Tensor:
        """What `first_exit` says, from what `signals_of` found: for many thresholds on one trace."""
        chosen = torch.full((signals.shape[1],), len(exit_layers) - 1, device=signals.device)
        for exit in reversed(range(len(signals))):
            chosen[self.passes(signals[exit], exit_layers[exit])] = exit
        return chosen

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        signals = signals_of(cls(0.0), exit_logits, exit_layers)
        return [cls(t) for t in spread_thresholds(signals, exit_layers, above=cls.above)]


def cooled(logits: Tensor, temperature: float) -> Tensor:
    """Divided by a temperature; padding of spans, which is the smallest number there is, stays what it is."""
    if temperature == 1.0:
        return logits
    largest = torch.finfo(logits.dtype).max
    return torch.where(logits > -largest, (logits / temperature).clamp(-largest, largest), logits)


def signals_of(rule: Threshold, exit_logits: Tensor, exit_layers: Sequence[int]) -> Tensor:
    """The signal at every exit but the last, which takes everybody: (E, N, …) to (E-1, N)."""
    rows = [rule.signal_at(layer, logits) for layer, logits in zip(exit_layers[:-1], exit_logits[:-1], strict=True)]
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
