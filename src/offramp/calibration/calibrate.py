"""From a trace of held-out rows and a promise to the operating point that keeps it at the least cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offramp.calibration.certify import METHODS, Tested, certify, chosen, cost_of
from offramp.calibration.choosing import choose_path
from offramp.calibration.losses import Cost, Inconsistency, Loss
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
        sure = "on average" if self.method == "expectation" else f"with {100 * self.confidence:g} % confidence"
        return f"at most {100 * self.limit:g} % {self.loss.title}, {sure}"


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
    trace: TraceBase | None = field(default=None, repr=False, compare=False)
    """Of the rows it was tested on."""
    certificate: Certificate | None = field(default=None, repr=False, compare=False)
    files: tuple[Path, ...] = ()
    """What was written."""


class Uncertified(OfframpError):
    """The rows do not support the promise."""


def calibrate_trace(
    trace: TraceBase,
    promise: Promise,
    *,
    seed: int = 0,
    policy: str | None = None,
    gated: Mapping[float, TraceBase] | None = None,
) -> Calibration:
    """The cheapest policy that keeps the promise; where the promise is about cost, the best one.

    Paths are tested that share the allowed error: one that was fixed in advance, on all rows, and one that is made on a
    part of the rows, over all policies and their numbers, on the others. With `policy` that one alone is.

    `gated` are traces of the same rows under other thresholds of the model's gates: the path fixed in advance is tested
    on each, against full depth as it is in `trace`.
    """
    check_limits(promise.limit, promise.confidence, promise.method)
    if len(trace.exit_layers) < 2 and not gated:
        raise OfframpError("the model has one exit: there is nothing to choose from")
    check_trace(trace, promise.loss)
    plan = list(_trials(trace, promise, seed, policy, gated or {}))
    about_cost = isinstance(promise.loss, Cost)
    best: tuple[float, Trial, Tested, list[Tested]] | None = None
    for trial in plan:
        confidence = trial.confidence(promise)
        tested = certify(trial.path, trial.trace, promise.loss, promise.limit, confidence, promise.method)
        found = chosen(tested, cheapest=not about_cost)
        if found is None or (not about_cost and found.cost > 1 - SAVES and policy is None):
            continue
        merit = -quality(trial.trace, found.policy) if about_cost else found.cost
        if best is None or merit < best[0]:
            best = merit, trial, found, tested
    if best is None:
        raise Uncertified(why_not(trace.answers, promise, plan))
    _, trial, found, tested = best
    return _calibration(trace, promise, trial, found, tested)


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


def _calibration(trace: TraceBase, promise: Promise, trial: Trial, found: Tested, tested: list[Tested]) -> Calibration:
    tested_on, confidence = trial.trace, 1 - trial.error_of_one(promise)
    observed = promise.loss.observe(tested_on, tested_on.exits(found.policy))
    in_expectation = promise.method == "expectation"
    return Calibration(
        promise=promise,
        policy=found.policy,
        path=trial.name,
        rows=trace.answers,
        tested_on=tested_on.answers,
        point=tested_on.point(found.policy),
        full=(tested_on if trial.gate_threshold is None else trace).full_depth_point(),
        risk=found.risk,
        bound=found.level if in_expectation else promise.loss.upper_bound(observed, confidence, promise.limit),
        tested=tuple(tested),
        exits=(trace if trial.gate_threshold is None else tested_on).point(found.policy).exits,
        gate_threshold=trial.gate_threshold,
        not_reached=tuple(trial.path[len(tested) :]),
        trace=tested_on,
    )


def why_not(rows: int, promise: Promise, plan: Sequence[Trial]) -> str:
    """What is missing, and how many rows would be enough if they were like these."""
    said = f"{rows:,} rows cannot support this promise: {promise}"
    if isinstance(promise.loss, Cost):
        return f"{said}; no policy is that cheap with that confidence: allow more, or give more rows"
    if len(plan) == len(plan[0].path) == 1:
        [trial] = plan
        lost = promise.loss.risk(promise.loss.observe(trial.trace, trial.trace.exits(trial.path[0])))
        return f"{said}; {trial.name} loses {100 * lost:.3g} % on them: allow more, or let another be found"
    needed = [enough for trial in plan if (enough := rows_needed(trial, promise)) is not None]
    if not needed:
        return f"{said}; no policy that saves anything stays below that on these rows: allow more loss"
    return f"{said}; about {min(needed):,} rows like these would be enough for a policy that saves something"


def rows_needed(trial: Trial, promise: Promise) -> int | None:
    """The fewest rows with which a path would come to a point that saves something; None where no number would do."""
    error = trial.error_of_one(promise)
    before = []  # all that has to pass until something is saved
    for policy in trial.path:
        exits = trial.trace.exits(policy)
        before.append(promise.loss.observe(trial.trace, exits))
        if cost_of(trial.trace).observe(trial.trace, exits).mean() < 1 - SAVES:
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
