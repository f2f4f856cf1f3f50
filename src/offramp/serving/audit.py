"""Whether early answers are still full depth's: a share of them is computed to the end in idle time."""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from offramp.engine.waves import Route
from offramp.models import MultiExitModel
from offramp.serving.answers import OperatingPoint
from offramp.serving.jobs import Job
from offramp.serving.metrics import Metrics

logger = logging.getLogger(__name__)

LAST = 1000
"""Audited answers that are looked back on."""
LEVEL = 0.001
"""Of the test that agreement has dropped. It is asked again with each answer, so that chance must be small."""


@dataclass
class Agreement:
    """What audits of one operating point have found."""

    promised: float | None
    audited: int = 0
    agreed: int = 0
    last: deque[bool] = field(default_factory=lambda: deque(maxlen=LAST))
    below: bool = False
    """Whether the last of them are fewer than promised, and not by chance."""

    def add(self, agrees: bool) -> bool:
        """Note one more; whether agreement has dropped with it."""
        self.audited += 1
        self.agreed += agrees
        self.last.append(agrees)
        before, self.below = self.below, self._is_below()
        return self.below and not before

    @property
    def share(self) -> float | None:
        """Of the last."""
        return sum(self.last) / len(self.last) if self.last else None

    def _is_below(self) -> bool:
        if self.promised is None or self.share is None or self.share >= self.promised:
            return False
        by_chance = float(special.bdtr(sum(self.last), len(self.last), self.promised))
        return self.below or by_chance < LEVEL  # once it is below, it is so until it is not


class Audit:
    """Picks answers to be audited, and compares them with full depth's.

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

    def consider(self, job: Job, point: OperatingPoint) -> Job | None:
        """The row once more, to full depth, where this answer is one of those that are audited."""
        if not point.audited or job.logits is None or self.draw.random() >= self.share:
            return None
        if job.exit == self.route.last:
            self._note(point, True)
            return None
        return Job(job.ticket, job.row, self.route, audit_of=(point, job.logits))

    def compare(self, job: Job) -> None:
        """An audited row has come to full depth."""
        if job.audit_of is not None and job.logits is not None:
            point, early = job.audit_of
            self._note(point, self.agree(early, job.logits))

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
                f"{known.promised:.1%} were promised ({point.promise}): the texts have changed; run offramp check, or "
                "calibrate on newer ones"
            )
