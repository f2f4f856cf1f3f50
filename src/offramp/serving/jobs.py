"""What is computed for whom: requests, and the rows of their texts."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offramp.engine import Text
from offramp.engine.waves import Route, Wave
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.serving.answers import OperatingPoint
from offramp.tasks.encoding import Row

ROUTES = 256
"""Policies that clients made up, and that are remembered."""


@dataclass(slots=True, eq=False)
class Request:
    """Texts that are answered together."""

    texts: Sequence[Text]
    point: OperatingPoint
    route: Route
    truncate: bool
    future: asyncio.Future[None]
    accepted: float
    """When, by `time.perf_counter`; so are all times here."""
    deadline: float | None = None
    gone: bool = False
    """Nobody waits for it any more: what is left of it is not computed."""
    jobs: tuple[Job, ...] = ()
    missing: int = 0
    """Rows that are not finished."""
    tokenise_s: float = 0.0


@dataclass(slots=True, eq=False)
class Job:
    """One row on its way."""

    ticket: int
    row: Row | None
    """None where the text is no row: `error` says why."""
    route: Route
    request: Request | None = None
    """None of an audit."""
    error: str | None = None
    late: bool = False
    """Its deadline had passed before its turn came."""
    started: float = 0.0
    finished: float = 0.0
    exit: int | None = None
    """0-based."""
    logits: NDArray[np.float32] | None = None
    wave: Wave | None = None
    """How far it had come, where it made way for others."""
    audit_of: tuple[OperatingPoint, NDArray[np.float32], int] | None = None
    """Which answer this row, at full depth, is to be compared with, and how many at full depth were drawn before it."""

    @property
    def is_gone(self) -> bool:
        return self.request is not None and self.request.gone

    def begin(self, now: float) -> bool:
        """Its turn has come: whether it is still worth computing."""
        self.started = now
        if self.request is not None and self.request.deadline is not None and now > self.request.deadline:
            self.late = True
        return not (self.late or self.is_gone)

    def finish(self, exit: int, logits: NDArray[np.float32]) -> None:
        if np.isfinite(logits).all():
            self.exit, self.logits = exit, logits
        else:
            self.error = "the model's answer is not a number (NaN)"


class Routes:
    """A route for each policy that is asked for; rows can run together under the policy only where it is the same."""

    def __init__(self, model: MultiExitModel, own: Sequence[OperatingPoint]) -> None:
        self.model = model
        self.own = {id(point.policy): (point, Route(model, point.policy)) for point in own}
        """By identity: to compare a policy with a number for each sample takes long."""
        self.others: OrderedDict[Policy, Route] = OrderedDict()
        self.recording = Route(model, own[0].policy, record=True)

    def of(self, point: OperatingPoint) -> Route:
        if (known := self.own.get(id(point.policy))) is not None:
            return known[1]
        if point.policy not in self.others:
            self.others[point.policy] = Route(self.model, point.policy)
            if len(self.others) > ROUTES:
                self.others.popitem(last=False)
        return self.others[point.policy]
