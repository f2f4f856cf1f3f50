"""What a policy makes of a model: stages, each some layers and the exits that are asked after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from offramp.policies import Fixed, Policy, State

START = 2
"""Layers, or stages, that begin a batch by themselves: a short graph is soon sent, and the rest while it runs."""


@dataclass(frozen=True)
class Stage:
    layers: range
    """0-based."""
    exits: tuple[int, ...]
    """Asked after the last of these layers; more than one where several sit after one layer, none after the start."""


class Move(NamedTuple):
    """Before a stage, whoever stays goes to the next lane and a smaller bucket."""

    stage: int
    size: int


def stages_of(policy: Policy, exit_layers: Sequence[int], record: bool) -> list[Stage]:
    """Recording asks every exit; otherwise those where the policy could let a row go, and the last."""
    last = len(exit_layers) - 1
    asked = [exit for exit in range(last + 1) if record or exit == last or policy.asks(exit, exit_layers)]
    if isinstance(policy, Fixed) and not record:
        asked = [exit for exit in asked if exit_layers[exit] == policy.layer]
    stages: list[Stage] = []
    reached = 0
    for exit in asked:
        if exit_layers[exit] == reached:
            stages[-1] = Stage(stages[-1].layers, (*stages[-1].exits, exit))
        else:
            stages.append(Stage(range(reached, exit_layers[exit]), (exit,)))
            reached = exit_layers[exit]
    if len(stages) == 1 and reached > START:
        return [Stage(range(START), ()), Stage(range(START, reached), stages[0].exits)]
    return stages


def states_of(
    policy: Policy, stages: Sequence[Stage], exit_layers: Sequence[int], labels: int, dtype: torch.dtype
) -> list[State]:
    """What the policy knows before each stage's exits, of two rows: shows shapes and types."""
    states = [policy.start(torch.zeros(2, dtype=torch.long))]
    for stage in stages:
        state = states[-1]
        for exit in stage.exits:
            _, state = policy.step(exit_layers[exit], torch.zeros(2, labels, dtype=dtype), state)
        states.append(state)
    return states[:-1]
