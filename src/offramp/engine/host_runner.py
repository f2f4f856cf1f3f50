"""The loop on the host: layer after layer over rows that are kept apart, so that leaving costs nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.runner import NO_EXIT, Finished, Packed, Runner
from offramp.models import MultiExitModel
from offramp.policies import Policy, State, select_rows

SLOTS = 64
"""Rows in the batch of a backbone whose layers are all the same: what leaves is refilled at once."""

Hidden = Any
"""A layer's output for one row, in the form its `Layers` likes best."""


class Layers(ABC):
    """How the layers and exits of a model are computed. What a row gets does not depend on its company."""

    @abstractmethod
    def embed(self, rows: Packed) -> list[Hidden]:
        """Tokens to the first layer's input, one a row."""

    @abstractmethod
    def layer(self, index: int, hidden: Sequence[Hidden], then: Sequence[int]) -> list[Hidden]:
        """Run layer `index` (0-based); `then` says for each row the exit that will be asked next, or `NO_EXIT`."""

    @abstractmethod
    def exit(self, exit: int, hidden: Sequence[Hidden]) -> Tensor:
        """Logits of exit `exit` (0-based) on the host: (n, C), or (n, T, 2) padded with the smallest number."""

    def is_sound(self, hidden: Hidden) -> bool:
        """Whether a row is free of NaN, where its logits would not show it."""
        return True


@dataclass
class Wave:
    """Rows at the same depth."""

    tickets: NDArray[np.int64]
    hidden: list[Hidden]
    lengths: NDArray[np.int64]
    state: State
    layer: int = 0
    """Layers that were run."""
    said: list[Tensor] = field(default_factory=list)
    """What every exit has said so far, where that is recorded."""

    def __len__(self) -> int:
        return len(self.hidden)

    def keep(self, stay: Tensor) -> None:
        """Go on with some of the rows."""
        picked = stay.numpy()
        self.tickets, self.lengths = self.tickets[picked], self.lengths[picked]
        self.hidden = list(compress(self.hidden, picked))
        self.state = select_rows(self.state, stay)


class HostRunner(Runner):
    """Runs rows through `layers` under a policy.

    Rows that came together go through the layers together. Where all layers are the same (ALBERT), rows at every depth
    do: as many as `slots`, and a slot that becomes free takes the next row.
    """

    def __init__(
        self, model: MultiExitModel, policy: Policy, layers: Layers, *, record: bool = False, slots: int = SLOTS
    ) -> None:
        self.layers = layers
        self.policy = policy
        self.record = record
        self.exit_layers = model.exits.layers
        self.spans = model.objective.name == "span"
        asked = [exit for exit in range(len(self.exit_layers)) if record or policy.asks(exit, self.exit_layers)]
        self.asked_after = [
            [exit for exit in asked if self.exit_layers[exit] == layer] for layer in range(model.backbone.depth + 1)
        ]
        """The exits that are asked, by the layers that were run."""
        modules = {id(model.backbone.layer_module(i)) for i in range(model.backbone.depth)}
        self.same_layers = len(modules) == 1 and model.gates is None  # gates are each layer's own
        self.slots = slots
        self.waiting: deque[Wave] = deque()
        self.waves: list[Wave] = []

    def submit(self, rows: Packed) -> list[Finished]:
        state = None if self.record else self.policy.start(torch.from_numpy(rows.tickets))
        self.waiting.append(Wave(rows.tickets, self.layers.embed(rows), rows.lengths, state))
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
        """Run one more layer for every row in the batch; rows at different depths share it where it is the same."""
        rows = [one for wave in self.waves for one in wave.hidden]
        then = [exit for wave in self.waves for exit in self._asked_first(wave.layer + 1) * len(wave)]
        hidden = self.layers.layer(self.waves[0].layer, rows, then)
        finished, start = [], 0
        for wave in self.waves:
            wave.hidden = hidden[start : start + len(wave)]
            start += len(wave.hidden)
            wave.layer += 1
            for exit in self.asked_after[wave.layer]:
                if wave.hidden:
                    finished += self._ask(wave, exit)
        self.waves = [wave for wave in self.waves if wave.hidden]
        return finished

    def _asked_first(self, layer: int) -> list[int]:
        return self.asked_after[layer][:1] or [NO_EXIT]

    def _ask(self, wave: Wave, exit: int) -> list[Finished]:
        """Ask an exit after the layer that was just run, and let go who leaves."""
        logits = self.layers.exit(exit, wave.hidden)
        leave = self._leave(wave, exit, logits)
        gone = leave.tolist()  # torch is slow over so few
        if not any(gone):
            return []
        said = torch.stack(wave.said, 1) if self.record else logits  # (n, E, …) or (n, …)
        if all(gone):  # a row that is alone: nothing has to be picked
            finished = self._finished(exit, wave.tickets, wave.lengths, wave.hidden, said)
            wave.hidden = []
        else:
            tickets, lengths = (each[leave.numpy()] for each in (wave.tickets, wave.lengths))
            finished = self._finished(exit, tickets, lengths, list(compress(wave.hidden, gone)), said[leave])
            wave.keep(~leave)
        return [finished]

    def _leave(self, wave: Wave, exit: int, logits: Tensor) -> Tensor:
        last = exit == len(self.exit_layers) - 1
        if self.record:
            wave.said.append(logits)
            return torch.full((len(wave),), last)
        leave, wave.state = self.policy.step(wave.layer, logits, wave.state)
        return torch.ones_like(leave) if last else leave

    def _finished(
        self,
        exit: int,
        tickets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        hidden: Sequence[Hidden],
        said: Tensor,
    ) -> Finished:
        values = said.float().numpy()
        for place, row in enumerate(hidden):
            if not self.layers.is_sound(row):
                values[place] = np.nan
        each = list(values)
        if self.spans:
            each = [row[..., :length, :] for row, length in zip(values, lengths, strict=True)]
        return Finished(tickets, np.full(len(each), exit), each)


def split(wave: Wave, rows: int) -> tuple[Wave, Wave]:
    """The first so many rows of a wave that has not begun, and the others."""
    first = torch.arange(len(wave)) < rows
    rest = Wave(wave.tickets, wave.hidden, wave.lengths, wave.state)
    rest.keep(~first)
    wave.keep(first)
    return wave, rest


def padded_logits(rows: Sequence[Tensor]) -> Tensor:
    """Spans' logits (T, 2) of several rows as one batch (n, T, 2): padding can be no answer."""
    longest = max(map(len, rows))
    batch = torch.full((len(rows), longest, 2), torch.finfo(torch.float32).min)
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
    return batch
