"""The loop on the host: layer after layer over rows that are kept apart."""

from __future__ import annotations

from collections import deque

from offramp.engine.runner import Finished, Packed, Runner
from offramp.engine.waves import Layers, Route, Wave, advance, has_one_layer, split
from offramp.models import MultiExitModel
from offramp.policies import Policy

SLOTS = 64
"""Rows in the batch of a backbone whose layers are all the same: what leaves is refilled at once."""


class HostRunner(Runner):
    """Runs rows through `layers` under a policy.

    Rows that came together go through the layers together. Where all layers are the same (ALBERT), rows at every depth
    do: as many as `slots`, and a slot that becomes free takes the next row.
    """

    def __init__(
        self, model: MultiExitModel, policy: Policy, layers: Layers, *, record: bool = False, slots: int = SLOTS
    ) -> None:
        self.layers = layers
        self.route = Route(model, policy, record)
        self.same_layers = has_one_layer(model)
        self.slots = slots
        self.waiting: deque[Wave] = deque()
        self.waves: list[Wave] = []

    def submit(self, rows: Packed) -> list[Finished]:
        self.waiting.append(self.route.start(self.layers, rows))
        finished: list[Finished] = []
        while self.waiting:
            self._refill()
            finished += self._round()
        return finished if self.same_layers else finished + self.flush()

    def flush(self) -> list[Finished]:
        finished = []
        while self.waves:
            finished += self._round()
        return finished

    def drop(self) -> None:
        self.waiting.clear()
        self.waves.clear()

    def _refill(self) -> None:
        """Let waiting rows into the batch, as far as there is room for them."""
        while self.waiting and (room := self.slots - sum(map(len, self.waves))) > 0:
            wave = self.waiting.popleft()
            if self.same_layers and len(wave) > room:
                wave, rest = split(wave, room)
                self.waiting.appendleft(rest)
            self.waves.append(wave)
            if not self.same_layers:
                return

    def _round(self) -> list[Finished]:
        """One more layer for every row in the batch."""
        finished = advance(self.layers, self.waves)
        self.waves = [wave for wave in self.waves if wave.hidden]
        return finished
