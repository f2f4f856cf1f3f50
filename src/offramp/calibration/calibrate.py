"""From a trace of held-out rows and a promise to the operating point that keeps it at the least cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offramp.calibration.certify import METHODS, Tested, certify_each, share_computed
from offramp.calibration.choosing import choose_path
from offramp.calibration.losses import Cost, Inconsistency, Loss
from offramp.calibration.menu import MENU, MenuPoint, cheaper_with_more
from offramp.calibration.paths import path_in_advance
from offramp.calibration.refusals import check_limits, check_trace
from offramp.errors import OfframpError
from offramp.evaluation.results import OperatingPoint
from offramp.evaluation.trace_base import TraceBase
from offramp.policies import Policy, policy_from_text

if TYPE_CHECKING:
    from offramp.calibration.certificate import Certificate

DESIGN = 0.25
"""Share of the rows that a path is made on, and nothing is certified on."""
MOST_DESIGN = 4000
FEWEST = math.ceil(2 / DESIGN)
"""Rows of which two are enough to make a path on."""
IN_ADVANCE = 0.8
"""Share of the allowed error for the path that needs no rows to be made; the other path has the rest."""
USUAL_LIMIT = 0.01
"""Of answers that differ from full depth's, where a path is to be made and cost alone is limited."""
SAVES = 0.02
"""Of full depth's cost: a point that saves less is not worth a policy."""
MOST_ROWS = 2**20
"""Nobody is told to label more."""


@dataclass(frozen=True)
class Promise:
    """The loss stays below a limit, with a confidence; or, in expectation, on average over calibration sets."""

    loss: Loss
    limit: float
    confidence: float = 0.95
    method: str = METHODS[0]

    def __str__(self) -> str:
        sure = "on average" if self.method == "expectation" else f"with {100 * self.confidence:.12g} % confidence"
        return f"at most {100 * self.limit:g} % {self.loss.said}, {sure}"


@dataclass(frozen=True)
class Trial:
    """A path, in the order in which it is tested, the rows it is tested on, and its part of the error."""

    name: str
    path: Sequence[Policy]
    trace: TraceBase
    share: float
    gate_threshold: float | None = None

    def confidence(self, promise: Promise) -> float:
        """With which the path is tested, so that the promise has its own."""
        return 1 - (1 - promise.confidence) * self.share

    def error_of_one(self, promise: Promise) -> float:
        """With which each of its points is."""
        return (1 - self.confidence(promise)) / (len(self.path) if promise.method == "bonferroni" else 1)


@dataclass(frozen=True)
class Calibration:
    """The policy that keeps a promise, and how it was found."""

    promise: Promise
    policy: Policy
    path: str
    """What the policy was found among."""
    rows: int
    """All, those a path was made on included."""
    tested_on: int
    point: OperatingPoint
    """Of the policy, on the rows it was tested on."""
    full: OperatingPoint
    """Of full depth, on the same rows."""
    risk: float
    bound: float
    """What the loss is at most, with the promise's confidence; in expectation, the corrected loss."""
    tested: tuple[Tested, ...]
    """The whole path, as far as it was tested."""
    exits: dict[int, int]
    """How many inputs left after each layer, on all rows."""
    gate_threshold: float | None = None
    """Where the model has gates, what their logits must be at least."""
    not_reached: tuple[Policy, ...] = ()
    """The rest of the path, after the first that failed."""
    menu: tuple[MenuPoint, ...] = ()
    """What other limits of the same loss would give, and this one, the lowest first."""
    trace: TraceBase | None = field(default=None, repr=False, compare=False)
    """Of the rows it was tested on."""
    certificate: Certificate | None = field(default=None, repr=False, compare=False)
    files: tuple[Path, ...] = ()
    """What was written."""


class Uncertified(OfframpError):
    """The rows do not support the promise."""


@dataclass(frozen=True)
class _Found:
    """The best that was found for a promise."""

    merit: tuple[float, float]
    """The smallest is the best: what it loses in quality, where cost is limited, and what it costs."""
    promise: Promise
    trial: Trial
    point: Tested
    tested: list[Tested]

    def bound(self) -> float:
        """What the loss is at most, with the promise's confidence; in expectation, the corrected loss."""
        if self.promise.method == "expectation":
            return self.point.level
        trace, loss = self.trial.trace, self.promise.loss
        confidence = 1 - self.trial.error_of_one(self.promise)
        return loss.upper_bound(loss.observe(trace, trace.exits(self.point.policy)), confidence, self.promise.limit)

    def menu_point(self) -> MenuPoint:
        given = self.trial.trace.point(self.point.policy)
        numbers = (given.mean_layers, given.cost, given.speed_up, given.score, given.agreement)
        return MenuPoint(self.promise.limit, self.point.policy, self.point.risk, self.bound(), *numbers)


def calibrate_trace(
    trace: TraceBase,
    promise: Promise,
    *,
    seed: int = 0,
    policy: str | None = None,
    gated: Mapping[float, TraceBase] | None = None,
    menu: Sequence[float] = MENU,
) -> Calibration:
    """The cheapest policy that keeps the promise; where the promise is about cost, the best one.

    Paths are tested that share the allowed error: one that was fixed in advance, on all rows, and one that is made on a
    part of the rows, over all policies and their numbers, on the others. With `policy` that one alone is.

    `gated` are traces of the same rows under other thresholds of the model's gates: the path fixed in advance is tested
    on each, against full depth as it is in `trace`.

    The same paths are tested for the limits of `menu`, each on its own, where the promise is about a loss.
    """
    check_limits(promise.limit, promise.confidence, promise.method)
    if len(trace.exit_layers) < 2 and not gated:
        raise OfframpError("the model has one exit: there is nothing to choose from")
    check_trace(trace, promise.loss)
    plan = list(_trials(trace, promise, seed, policy, gated or {}))
    others = () if isinstance(promise.loss, Cost) else sorted(set(menu) - {promise.limit})
    promises = [promise, *(replace(promise, limit=limit) for limit in others)]
    results = [found for trial in plan for found in _tried(trial, promises, any_cost=policy is not None)]
    best = _best(results, promise)
    if best is None:
        raise Uncertified(why_not(trace.answers, promise, plan, policy))
    # One model, one threshold of its gates: the others would need another.
    alike = [found for found in results if found.trial.gate_threshold == best.trial.gate_threshold]
    on_menu = [found for other in promises[1:] if (found := _best(alike, other)) is not None]
    points = cheaper_with_more((found.menu_point() for found in [best, *on_menu] if others), promise.limit)
    return _calibration(trace, best, points)


def _tried(trial: Trial, promises: Sequence[Promise], any_cost: bool) -> Iterator[_Found]:
    """What a trial gives for promises that differ in their limits only, where it gives something worth a policy."""
    asked = promises[0]
    limits = [promise.limit for promise in promises]
    about_cost = isinstance(asked.loss, Cost)
    each = certify_each(trial.path, trial.trace, asked.loss, limits, trial.confidence(asked), asked.method)
    for promise, tested in zip(promises, each, strict=True):
        passed = [one for one in tested if one.passes]
        merits = [(-quality(trial.trace, one.policy) if about_cost else 0.0, one.cost) for one in passed]
        if passed and (about_cost or any_cost or min(merits)[1] <= 1 - SAVES):
            yield _Found(min(merits), promise, trial, passed[merits.index(min(merits))], tested)


def _best(results: Sequence[_Found], promise: Promise) -> _Found | None:
    """Of equal ones the first."""
    return min((found for found in results if found.promise is promise), key=lambda found: found.merit, default=None)


def _trials(
    trace: TraceBase, promise: Promise, seed: int, policy: str | None, gated: Mapping[float, TraceBase]
) -> Iterator[Trial]:
    if policy is not None:
        yield Trial(policy, (policy_from_text(policy),), trace, 1.0)
        return
    about_cost = isinstance(promise.loss, Cost)
    order_of = reversed if about_cost else iter  # from the safe end of a path
    in_advance = tuple(order_of(path_in_advance(trace)))
    alone = promise.method == "expectation"  # the cheapest of several would keep the limit on average no more
    if in_advance:
        share = 1.0 if alone else IN_ADVANCE / (1 + len(gated))
        yield Trial("entropy, fixed in advance", in_advance, trace, share)
        if alone:
            return
        for threshold, other in gated.items():
            yield Trial(f"entropy, gates from {threshold:g} on", in_advance, other, share, threshold)
    order = np.random.default_rng(seed).permutation(trace.answers)
    cut = min(int(DESIGN * len(order)), MOST_DESIGN)
    if cut < 2:
        return
    design, rest = trace.take(order[:cut]), trace.take(order[cut:])
    objective, limit = (Inconsistency(), USUAL_LIMIT) if about_cost else (promise.loss, promise.limit)
    path = choose_path(design, objective, limit, promise.confidence, rest.answers)
    policies = tuple(order_of([point.policy for point in path.points]))
    yield Trial(path.name, policies, rest, 1 - IN_ADVANCE if in_advance else 1.0)


def quality(trace: TraceBase, policy: Policy) -> float:
    """The score, or without labels the agreement with full depth."""
    exits = trace.exits(policy)
    scores = trace.scores_at(exits)
    return scores[trace.metrics[0]] if scores else trace.agreement_at(exits)


def _calibration(trace: TraceBase, best: _Found, menu: tuple[MenuPoint, ...]) -> Calibration:
    trial, policy = best.trial, best.point.policy
    tested_on = trial.trace
    return Calibration(
        promise=best.promise,
        policy=policy,
        path=trial.name,
        rows=trace.answers,
        tested_on=tested_on.answers,
        point=tested_on.point(policy),
        full=(tested_on if trial.gate_threshold is None else trace).full_depth_point(),
        risk=best.point.risk,
        bound=best.bound(),
        tested=tuple(best.tested),
        exits=(trace if trial.gate_threshold is None else tested_on).point(policy).exits,
        gate_threshold=trial.gate_threshold,
        not_reached=tuple(trial.path[len(best.tested) :]),
        menu=menu,
        trace=tested_on,
    )


def why_not(rows: int, promise: Promise, plan: Sequence[Trial], policy: str | None = None) -> str:
    """What is missing, and how many rows would be enough if they were like these; `policy` if one alone was tested."""
    said = f"{rows:,} rows cannot support this promise: {promise}"
    if not plan:
        return f"{said}; they are too few to look for a policy on: give {FEWEST} or more"
    if isinstance(promise.loss, Cost):
        return f"{said}; no policy is that cheap with that confidence: allow more, or give more rows"
    if policy is not None:
        [trial] = plan
        lost = promise.loss.risk(promise.loss.observe(trial.trace, trial.trace.exits(trial.path[0])))
        return f"{said}; {trial.name} loses {100 * lost:.3g} % on them: allow more, or let another be found"
    enough = [(trial, rows_needed(trial, promise)) for trial in plan]
    needed = [with_design(some) if trial.trace.answers < rows else some for trial, some in enough if some is not None]
    if not needed:
        return f"{said}; no policy that saves anything stays below that on these rows: allow more loss"
    return f"{said}; about {min(needed):,} rows like these would be enough for a policy that saves something"


def with_design(tested: int) -> int:
    """How many rows there must be for so many to be tested on, after those that a path is made on."""
    return tested + min(math.ceil(tested * DESIGN / (1 - DESIGN)), MOST_DESIGN)


def rows_needed(trial: Trial, promise: Promise) -> int | None:
    """The fewest rows with which a path would come to a point that saves something; None where no number would do."""
    error = trial.error_of_one(promise)
    before = []  # all that has to pass until something is saved
    for policy in trial.path:
        exits = trial.trace.exits(policy)
        before.append(promise.loss.observe(trial.trace, exits))
        if share_computed(trial.trace, exits) < 1 - SAVES:
            break
    else:
        return None
    rows = trial.trace.answers  # that many were not enough
    while rows <= MOST_ROWS and not all(_passes(observed, rows, promise, error) for observed in before):
        rows = int(rows * 1.1) + 1
    return rows if rows <= MOST_ROWS else None


def _passes(observed: np.ndarray, rows: int, promise: Promise, error: float) -> bool:
    many = np.resize(observed, rows)
    if promise.method == "expectation":
        return float(many.sum() + promise.loss.high) / (rows + 1) <= promise.limit
    return promise.loss.pvalue(many, promise.limit) <= error
