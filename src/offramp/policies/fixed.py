"""Fixed and Scripted: exits that do not look at the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.errors import OfframpError
from offramp.policies.base import EVERY_TASK, Policy, State


@dataclass(frozen=True)
class Fixed(Policy):
    """Everybody leaves after one layer."""

    tasks = EVERY_TASK

    layer: int

    def check(self, task: str, exit_layers: Sequence[int]) -> None:
        super().check(task, exit_layers)
        if self.layer not in exit_layers:
            raise OfframpError(f"fixed({self.layer}): no exit there; the exits are after layers {list(exit_layers)}")

    def asks(self, exit: int, exit_layers: Sequence[int]) -> bool:
        """Its own alone. Of two after one layer, the second: full depth is not DeeBERT's untrained highway."""
        last = exit == len(exit_layers) - 1
        return last or (exit_layers[exit] == self.layer and exit_layers[exit + 1] != self.layer)

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        return torch.full((len(logits),), layer >= self.layer, device=logits.device), None

    @classmethod
    def candidates(cls, exit_logits: Tensor, exit_layers: Sequence[int], task: str) -> list[Policy]:
        return [cls(layer) for layer in sorted(set(exit_layers))]


@dataclass(frozen=True)
class Scripted(Policy):
    """Sample number s leaves after layer `layers[s]`: to measure an engine under any mix of exits."""

    tasks = EVERY_TASK

    layers: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_script", torch.tensor(self.layers))  # made once: it may be long

    def start(self, samples: Tensor) -> State:
        if len(samples) and int(samples.max()) >= len(self.layers):
            raise OfframpError(
                f"the script has {len(self.layers)} samples, but sample {int(samples.max())} was asked for"
            )
        script: Tensor = self._script  # type: ignore[attr-defined]
        return script.to(samples.device)[samples]

    def step(self, layer: int, logits: Tensor, state: State) -> tuple[Tensor, State]:
        return state <= layer, state
