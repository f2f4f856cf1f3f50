"""Rows at the same depth, kept apart, so that leaving costs nothing; and one layer more for some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.runner import NO_EXIT, Finished, Packed
from offramp.models import MultiExitModel
from offramp.policies import Policy, State, join_rows, select_rows

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


class Route:
    """What rows are asked on their way: by which exits, and under which policy they leave.

    A recording route asks every exit, and lets none leave before the last.
    """

    def __init__(self, model: MultiExitModel, policy: Policy, record: bool = False) -> None:
        self.policy = policy
        self.record = record
        self.spans = model.objective.name == "span"
        layers = model.exits.layers
        self.last = len(layers) - 1
        asked = [exit for exit in range(len(layers)) if record or exit == self.last or policy.asks(exit, layers)]
        self.asked_after = [[exit for exit in asked if layers[exit] == run] for run in range(model.backbone.depth + 1)]
        """The exits that are asked, by the layers that were run."""

    def start(self, layers: Layers, rows: Packed) -> Wave:
        """Rows before the first layer."""
        state = None if self.record else self.policy.start(torch.from_numpy(rows.tickets))
        return Wave(self, rows.tickets, layers.embed(rows), rows.lengths, state)

    def asked_first(self, layer: int) -> int:
        """The first exit that is asked after so many layers, or `NO_EXIT`."""
        return self.asked_after[layer][0] if self.asked_after[layer] else NO_EXIT


@dataclass
class Wave:
    """Rows of one route at the same depth."""

    route: Route
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
        self.said = [logits[stay] for logits in self.said]

    def ask(self, layers: Layers, exit: int) -> list[Finished]:
        """Ask an exit after the layer that was just run, and let go who leaves."""
        logits = layers.exit(exit, self.hidden)
        leave = self._leave(exit, logits)
        gone = leave.tolist()  # torch is slow over so few
        if not any(gone):
            return []
        said = torch.stack(self.said, 1) if self.route.record else logits  # (n, E, …) or (n, …)
        if all(gone):  # a row that is alone: nothing has to be picked
            finished = self._finished(layers, exit, self.tickets, self.lengths, self.hidden, said)
            self.hidden = []
        else:
            tickets, lengths = (each[leave.numpy()] for each in (self.tickets, self.lengths))
            finished = self._finished(layers, exit, tickets, lengths, list(compress(self.hidden, gone)), said[leave])
            self.keep(~leave)
        return [finished]

    def _leave(self, exit: int, logits: Tensor) -> Tensor:
        last = exit == self.route.last  # takes whoever is left, whatever the policy looks at
        if self.route.record:
            self.said.append(logits)
        if self.route.record or last:
            return torch.full((len(self),), last)
        leave, self.state = self.route.policy.step(self.layer, logits, self.state)
        return leave

    def _finished(
        self,
        layers: Layers,
        exit: int,
        tickets: NDArray[np.int64],
        lengths: NDArray[np.int64],
        hidden: Sequence[Hidden],
        said: Tensor,
    ) -> Finished:
        values = said.float().numpy()
        for place, row in enumerate(hidden):
            if not layers.is_sound(row):
                values[place] = np.nan
        each = list(values)
        if self.route.spans:
            each = [row[..., :length, :] for row, length in zip(values, lengths, strict=True)]
        return Finished(tickets, np.full(len(each), exit), each)


def advance(layers: Layers, waves: Sequence[Wave]) -> list[Finished]:
    """Run one more layer for every row; rows at different depths may share it only where all layers are the same."""
    rows = [one for wave in waves for one in wave.hidden]
    then = [exit for wave in waves for exit in [wave.route.asked_first(wave.layer + 1)] * len(wave)]
    hidden = layers.layer(waves[0].layer, rows, then)
    finished, start = [], 0
    for wave in waves:
        wave.hidden = hidden[start : start + len(wave)]
        start += len(wave.hidden)
        wave.layer += 1
        for exit in wave.route.asked_after[wave.layer]:
            if wave.hidden:
                finished += wave.ask(layers, exit)
    return finished


def split(wave: Wave, rows: int) -> tuple[Wave, Wave]:
    """The first so many rows of a wave, and the others."""
    first = torch.arange(len(wave)) < rows
    rest = Wave(wave.route, wave.tickets, wave.hidden, wave.lengths, wave.state, wave.layer, wave.said)
    rest.keep(~first)
    wave.keep(first)
    return wave, rest


def joined(waves: Sequence[Wave]) -> Wave:
    """Waves of one route at one depth, as one."""
    if len(waves) == 1:
        return waves[0]
    return Wave(
        waves[0].route,
        np.concatenate([wave.tickets for wave in waves]),
        [row for wave in waves for row in wave.hidden],
        np.concatenate([wave.lengths for wave in waves]),
        join_rows([wave.state for wave in waves]),
        waves[0].layer,
        [torch.cat(said) for said in zip(*(wave.said for wave in waves), strict=True)],
    )


def has_one_layer(model: MultiExitModel) -> bool:
    """Whether all layers are the same (ALBERT). Gates are each layer's own."""
    modules = {id(model.backbone.layer_module(i)) for i in range(model.backbone.depth)}
    return len(modules) == 1 and model.gates is None


def weights_of_layer(model: MultiExitModel) -> int:
    """How many numbers a layer has learnt."""
    return sum(weight.numel() for weight in model.backbone.layer_module(0).parameters())


def padded_logits(rows: Sequence[Tensor]) -> Tensor:
    """Spans' logits (T, 2) of several rows as one batch (n, T, 2): padding can be no answer."""
    longest = max(map(len, rows))
    batch = torch.full((len(rows), longest, 2), torch.finfo(torch.float32).min)
    for place, row in enumerate(rows):
        batch[place, : len(row)] = row
    return batch
