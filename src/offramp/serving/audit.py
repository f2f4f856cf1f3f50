"""Whether early answers are still full depth's: a share of them is computed to the end in idle time."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.engine.waves import Route
from offramp.models import MultiExitModel
from offramp.serving.answers import OperatingPoint
from offramp.serving.jobs import Job
from offramp.serving.metrics import Metrics

logger = logging.getLogger(__name__)

LAST = 1000
"""Audited answers that are looked back on."""
LEVEL = 0.001
"""How probable an alarm may be in all the time that a server runs, while agreement is what it should be."""


@dataclass
class Agreement:
    """What audits of one operating point have found.

    Somebody who looks again with each answer will see what looks like a drop sooner or later. So answers are bet on, as
    in `offramp.calibration.pvalues`: whoever bets that fewer agree than should has ever 1/u times the money they began
    with, if that is not so, with a probability of at most u, however long they go on. They begin anew after so many
    answers, or a good time would have to be made up for; the k-th time has the share 6 / (π k)² of the error.
    """

    promised: float | None
    audited: int = 0
    agreed: int = 0
    last: deque[bool] = field(default_factory=lambda: deque(maxlen=LAST))
    below: bool = False
    """Whether the last of them are fewer than should be, and not by chance."""
    times: int = 0
    """That betting has begun."""
    bets: list[int] = field(default_factory=lambda: [0, 0])
    """Since then: those that agree, and those that do not."""

    def add(self, agrees: bool) -> bool:
        """Note one more; whether agreement has dropped with it."""
        self.audited += 1
        self.agreed += agrees
        self.last.append(agrees)
        if self.promised is None:
            return False
        if self.below:  # until it is not
            self.below = sum(self.last) < self.promised * len(self.last)
            self.bets = [0, 0]
            return False
        if not sum(self.bets) % LAST:
            self.times, self.bets = self.times + 1, [0, 0]
        self.bets[0 if agrees else 1] += 1
        self.below = not agrees and self._is_improbable(self.promised)
        if self.below:
            self.last = deque(list(self.last)[-sum(self.bets) :], maxlen=LAST)  # those before were good
        return self.below

    @property
    def share(self) -> float | None:
        """Of the last."""
        return sum(self.last) / len(self.last) if self.last else None

    def _is_improbable(self, promised: float) -> bool:
        from offramp.calibration.pvalues import money  # it is there since the promise was read

        won = money(np.array([promised - 1, promised]), np.array(self.bets))
        return bool(won >= math.log((math.pi * self.times) ** 2 / (6 * LEVEL)))


class Audit:
    """Picks answers to be audited, and compares them with full depth's.

    Under load, audits are forgotten before they are run. An answer that is full depth's already needs no run, and would
    be counted all the same: the busier the server, the better it would look. So it is counted with the next that left
    early, and forgotten with it. What is left is a sequence of draws as if nothing had been forgotten.

    Args:
        model: whose answers they are.
        full_depth: the route to it.
        share: of the answers, 0 to 1.
        tolerance: in regression, how far a number may be from full depth's; without one, there is no audit.
    """

    def __init__(
        self,
        model: MultiExitModel,
        full_depth: Route,
        metrics: Metrics,
        share: float,
        tolerance: float | None = None,
        seed: int | None = None,
    ) -> None:
        self.regression = model.objective.name == "regression"
        self.tolerance = tolerance
        self.share = 0.0 if self.regression and tolerance is None else share
        self.route = full_depth
        self.metrics = metrics
        self.draw = random.Random(seed)
        self.found: dict[str, Agreement] = {}
        self.waiting: Counter[str] = Counter()
        """By point: answers at full depth that wait for the next that left early."""

    def consider(self, job: Job, point: OperatingPoint) -> Job | None:
        """The row once more, to full depth, where this answer is one of those that are audited."""
        if not point.audited or job.logits is None or self.draw.random() >= self.share:
            return None
        if job.exit == self.route.last:
            self.waiting[point.name] += 1
            return None
        return Job(job.ticket, job.row, self.route, audit_of=(point, job.logits, self.waiting.pop(point.name, 0)))

    def compare(self, job: Job) -> None:
        """An audited row has come to full depth."""
        if job.audit_of is not None and job.logits is not None:
            point, early, before = job.audit_of
            for agrees in (*[True] * before, self.agree(early, job.logits)):
                self._note(point, agrees)

    def agree(self, early: NDArray[np.float32], full: NDArray[np.float32]) -> bool:
        if self.regression:
            return bool(abs(float(early[0]) - float(full[0])) <= (self.tolerance or 0.0))
        return bool(early.argmax() == full.argmax())

    def of(self, point: OperatingPoint) -> Agreement:
        return self.found.setdefault(point.name, Agreement(point.least_agreement))

    def stats(self, point: OperatingPoint) -> dict[str, Any]:
        known = self.of(point)
        return {
            "audited": known.audited,
            "agreed": known.agreed,
            "share": known.share,
            "promised": known.promised,
            "below_promise": known.below,
        }

    def _note(self, point: OperatingPoint, agrees: bool) -> None:
        known = self.of(point)
        dropped = known.add(agrees)
        self.metrics.audited.labels(point.name).inc()
        self.metrics.agreed.labels(point.name).inc(agrees)
        self.metrics.agreement.labels(point.name).set(known.share or 0.0)
        if known.promised is not None:
            self.metrics.promised.labels(point.name).set(known.promised)
            self.metrics.below.labels(point.name).set(known.below)
        if dropped:
            logger.warning(
                f"{point.name}: {known.share:.1%} of the last {len(known.last)} audited answers are full depth's, and "
                f"at least {known.promised:.1%} are expected ({point.promise}): the texts have changed; run offramp "
                "check, or calibrate on newer ones"
            )
