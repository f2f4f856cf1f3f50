"""Whether a promise still holds on new rows, with labels or without, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from offramp.calibration.calibrate import MOST_ROWS, Promise
from offramp.calibration.certificate import Certificate
from offramp.calibration.certify import METHODS
from offramp.calibration.losses import BOUNDS, BY_METRIC, AccuracyGap, Cost, Exits, Inconsistency, Loss, Observed
from offramp.calibration.shift import MARKED, Shift, largest, shifts
from offramp.engine.coverage import RunAs, not_covered
from offramp.errors import OfframpError
from offramp.evaluation.trace_base import TraceBase

HOLDS, BROKEN, UNKNOWN = "holds", "broken", "unknown"


@dataclass(frozen=True)
class LossSeen:
    """What new rows say of a loss."""

    loss: str
    """Its name: where there are no labels, inconsistency stands in for accuracy."""
    risk: float
    bound: float
    """What it is at most, with the promise's confidence."""
    over: float
    """p-value of "the loss is over the limit": a small one says that the promise holds."""
    within: float | None
    """p-value of "it is within the limit": a small one says that it does not. None of a loss that stands in: it can
    be over the limit while the promise holds."""


@dataclass(frozen=True)
class Check:
    """A promise, and what new rows say of it."""

    verdict: str
    """holds, broken or unknown, each of the first two wrong with a probability of at most 1 − confidence."""
    promise: str
    loss: str
    """What the promise is about."""
    limit: float
    confidence: float
    rows: int
    labelled: bool
    tested: LossSeen | None
    """None where the rows, without labels, say nothing of the loss."""
    shifts: tuple[Shift, ...]
    shift: str
    """The largest of them: none, slight or marked."""
    cost: float
    """Share of full depth's layers that is run."""
    agreement: float
    """With full depth's answers."""
    before: Mapping[str, float]
    """rows, risk, bound, cost and agreement at calibration."""
    rows_needed: int | None
    """About how many rows would tell, if they are like these; None where the verdict is out, or no number would do."""
    advice: tuple[str, ...]
    run_otherwise: str | None = None
    """In what the rows were run otherwise than those of the calibration, of which the promise is."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def check_weights(certificate: Certificate, weights: str) -> None:
    """`weights` is the digest of those that are there now."""
    if certificate.model != weights:
        raise OfframpError("these are other weights than those that the policy was calibrated with: calibrate again")


def check_promise(trace: TraceBase, certificate: Certificate, again: str = "offramp calibrate MODEL") -> Check:
    """Test a promise on new rows; `again` is how to calibrate on them, less what the promise says.

    The loss is tested from both sides and, where rows have no labels, by what can be seen without: accuracy loses at
    most the share of the answers that differ from full depth's. Of F1 nothing like it is true. A promise that was made
    on average is tested as one that was made with confidence: it is about this one policy now.
    """
    _check_rows(trace, certificate)
    promise, exits = certificate.promise, trace.exits(certificate.policy)
    found, verdict, needed = _test(trace, certificate, exits)
    moved = shifts(trace, certificate)
    other = not_covered(certificate.data, RunAs.certified(vars(trace)))
    return Check(
        verdict=verdict,
        promise=str(promise),
        loss=promise.loss.name,
        limit=promise.limit,
        confidence=promise.confidence,
        rows=trace.answers,
        labelled=trace.labelled,
        tested=found,
        shifts=moved,
        shift=largest(moved),
        cost=trace.point(certificate.policy).cost,
        agreement=trace.agreement_at(exits),
        before={"rows": certificate.data["rows"]}
        | {name: certificate.found[name] for name in ("risk", "bound", "cost", "agreement")},
        rows_needed=needed,
        advice=tuple(_advice(trace, promise, found, verdict, needed, largest(moved) == MARKED, again)),
        run_otherwise=None if other is None else str(other),
    )


def _check_rows(trace: TraceBase, certificate: Certificate) -> None:
    if not trace.answers:
        raise OfframpError(f"{trace.source}: there are no rows to check")
    if trace.data and trace.data == certificate.data["digest"]:
        raise OfframpError(
            f"{trace.source} holds the rows that the policy was calibrated on, which can say nothing new: give others"
        )
    if not np.isfinite(trace.logits).all():
        raise OfframpError("the model says NaN or infinity to some of the rows: mend it before relying on a promise")


def _test(trace: TraceBase, certificate: Certificate, exits: Exits) -> tuple[LossSeen | None, str, int | None]:
    """What the rows say of the loss, the verdict and, where there is none, how many rows would tell."""
    promise = certificate.promise
    error = 1 - promise.confidence
    if trace.labelled or not promise.loss.needs_labels:
        observed = promise.loss.observe(trace, exits)
        found = _tested(promise.loss, observed, promise, promise.loss.pvalue_within(observed, promise.limit))
        if found.over <= error:
            return found, HOLDS, None
        if found.within is not None and found.within <= error:
            return found, BROKEN, None
        return found, UNKNOWN, rows_that_tell(observed, promise, trace.answers)
    enough = certificate.data["tested_on"]  # at calibration
    if not isinstance(promise.loss, AccuracyGap):
        return None, UNKNOWN, enough
    differ = Inconsistency(promise.loss.bound)
    observed = differ.observe(trace, exits)
    found = _tested(differ, observed, promise, None)
    if found.over <= error:
        return found, HOLDS, None
    guessed = _losses_if_labelled(observed, certificate.found["risk"])
    return found, UNKNOWN, rows_that_tell(guessed, promise, enough)


def _tested(loss: Loss, observed: Observed, promise: Promise, within: float | None) -> LossSeen:
    bound = loss.upper_bound(observed, promise.confidence)
    return LossSeen(loss.name, loss.risk(observed), bound, loss.pvalue(observed, promise.limit), within)


def _losses_if_labelled(differ: Observed, risk: float) -> Observed:
    """Of answers that differ from full depth's as often as now, and lose as much as they did at calibration."""
    n, different = len(differ), float(differ.sum())
    lost = min(max(n * risk, -different), different)
    worse, better = round((different + lost) / 2), round((different - lost) / 2)
    return np.repeat([1.0, -1.0, 0.0], [worse, better, max(n - worse - better, 0)])


def rows_that_tell(observed: Observed, promise: Promise, fewest: int) -> int | None:
    """About how many rows that lose as these do would show whether the promise holds; None where none are enough."""
    values, counts = np.unique(observed, axis=0, return_counts=True)

    def tell(rows: int) -> bool:
        many = np.repeat(values, np.rint(counts * (rows / len(observed))).astype(np.int64), axis=0)
        tests = (promise.loss.pvalue, promise.loss.pvalue_within)
        return len(many) > 0 and any(test(many, promise.limit) <= 1 - promise.confidence for test in tests)

    too_few = enough = fewest
    while enough <= MOST_ROWS and not tell(enough):
        too_few, enough = enough, 2 * enough
    while enough - too_few > max(1, 0.1 * too_few) and too_few < MOST_ROWS:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if tell(middle) else (middle, enough)
    return enough if enough <= MOST_ROWS else None


def _advice(
    trace: TraceBase,
    promise: Promise,
    found: LossSeen | None,
    verdict: str,
    needed: int | None,
    marked: bool,
    again: str,
) -> Iterator[str]:
    command = f"{again} {promise_options(promise, trace.metrics[0])}"
    if verdict == HOLDS and not marked:
        yield "Keep the policy."
    elif verdict == HOLDS:
        yield "Keep the policy: the promise holds on these rows, unlike as they are to those it was calibrated on."
        yield f"To see whether more can be saved on them, calibrate again: {command}"
    elif verdict == BROKEN:
        limit = "--max-cost" if isinstance(promise.loss, Cost) else "--max-loss"
        yield f"Calibrate again on rows like these: {command}"
        if found is not None:
            share = np.ceil(1000 * found.bound) / 1000
            yield f"Or allow more: on these rows, the policy keeps below {100 * share:g} % ({limit} {share:g})."
        if not isinstance(promise.loss, Cost):
            yield f"Until then, use full depth: --policy 'fixed({trace.exit_layers[-1]})'"
    elif marked:
        yield "Do not rely on the promise yet: these rows are unlike those the policy was calibrated on."
        yield _more_rows(trace, promise, needed)
        yield f"Or calibrate on rows like these{'' if _can_test(trace, promise) else ', labelled'}: {command}"
    else:
        yield "Keep the policy: nothing speaks against the promise, but these rows alone do not prove it."
        yield _more_rows(trace, promise, needed)


def _can_test(trace: TraceBase, promise: Promise) -> bool:
    return trace.labelled or not promise.loss.needs_labels


def _more_rows(trace: TraceBase, promise: Promise, needed: int | None) -> str:
    if needed is None:
        return "The loss is so near to the limit that no number of rows is likely to tell on which side it is."
    if _can_test(trace, promise):
        return f"To know, check about {needed:,} rows like these."
    return f"To know, label about {needed:,} rows like these, drawn at random, and check those."


def promise_options(promise: Promise, metric: str) -> str:
    """A promise as `offramp calibrate` is told it, of a task with this metric of its own."""
    loss = promise.loss
    words = [f"--max-cost {promise.limit:g}" if isinstance(loss, Cost) else f"--max-loss {promise.limit:g}"]
    if isinstance(loss, Cost) and loss.flops:
        words.append("--flops")
    if isinstance(loss, Inconsistency):
        words.append("--consistency")
        words += [f"--tolerance {loss.tolerance:g}"] if loss.tolerance else []
    if loss.name in BY_METRIC and BY_METRIC.get(metric) is not type(loss):
        words.append(f"--metric {loss.name}")
    if promise.method != "expectation":
        words.append(f"--confidence {promise.confidence:.12g}")
    words += [f"--method {promise.method}"] if promise.method != METHODS[0] else []
    words += [f"--bound {loss.bound}"] if loss.bound != BOUNDS[0] else []
    return " ".join(words)
