"""Full depth against exits on this machine: the engine, one text at a time, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from offramp.bench.contestants import own_pair
from offramp.bench.timing import Rounds, interleave
from offramp.engine import Engine
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Policy
from offramp.tasks.encoding import Row

ROWS = 256
"""That are timed at most."""
SECONDS = 8.0
LEAST_ROUNDS, MOST_ROUNDS = 3, 30


@dataclass(frozen=True)
class Speed:
    """Milliseconds a text, and how many times faster exits are: medians over rounds."""

    full_depth: float
    exits: float | None
    speed_up: float | None
    setting: str
    """Where and how it was computed."""


def measure(model: MultiExitModel, policy: Policy | None, rows: Sequence[Row]) -> Speed:
    """Time the model at full depth and under a policy, where there is one, on the same rows."""
    depth = Fixed(model.exits.layers[-1])
    engine = Engine(model, policy or depth)
    numbered = list(enumerate(rows[:ROWS]))
    pair = own_pair(engine, depth)
    turns = {one.name: [partial(one.run, work) for work in one.batches(numbered, 1)] for one in pair}
    if policy is None:
        del turns[pair[1].name]
    interleave(turns, Rounds(), 0, 1)  # to warm up
    rounds = Rounds()
    interleave(turns, rounds, SECONDS, MOST_ROUNDS, least_rounds=LEAST_ROUNDS)
    full, exits = (1000 / rounds.rate(one.name, len(numbered)) if one.name in turns else None for one in pair)
    assert full is not None
    speed_up = None if exits is None else rounds.ratio(pair[0].name, pair[1].name)
    return Speed(full, exits, speed_up, str(engine.setting))
