"""Which points of a path may be used: tests on rows that the path knows nothing of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from offramp.calibration.losses import Cost, Exits, Loss
from offramp.errors import OfframpError
from offramp.evaluation.trace_base import TraceBase
from offramp.policies import Policy

METHODS = ("fixed_sequence", "bonferroni", "expectation")


@dataclass(frozen=True)
class Tested:
    """A point of a path, and what the rows to certify on say of it."""

    policy: Policy
    cost: float
    risk: float
    level: float
    """A p-value or, where the promise is one in expectation, the corrected risk."""
    passes: bool


def certify(
    path: Sequence[Policy], trace: TraceBase, loss: Loss, limit: float, confidence: float, method: str
) -> list[Tested]:
    """The points that were tested, in the order of the path; the last that passes is the one to use.

    fixed_sequence: each is tested with the whole error that is allowed, until one fails; none after it counts. If the
        loss is over the limit anywhere, the first such point passes by mistake with that probability at most, and
        without it nobody comes further (Angelopoulos et al., 2021; on a front: Laufer-Goldshtein et al., 2023).
    bonferroni: all are tested, each with its part of the error.
    expectation: conformal risk control (Angelopoulos et al., 2022). The loss on a new row is below the limit on average
        over calibration sets; a loss that falls along the path counts as if it had stayed.
    """
    if method == "expectation":
        return _in_expectation(path, trace, loss, limit)
    error = (1 - confidence) / (len(path) if method == "bonferroni" else 1)
    tested: list[Tested] = []
    for policy in path:
        exits = trace.exits(policy)
        observed = loss.observe(trace, exits)
        level = loss.pvalue(observed, limit)
        tested.append(_tested(policy, trace, exits, loss.risk(observed), level, level <= error))
        if method == "fixed_sequence" and level > error:
            break
    return tested


def _in_expectation(path: Sequence[Policy], trace: TraceBase, loss: Loss, limit: float) -> list[Tested]:
    if type(loss).risk is not Loss.risk:
        raise OfframpError(f"{loss.name} is no mean over answers: it cannot be limited in expectation")
    tested: list[Tested] = []
    highest = np.full(trace.answers, loss.low)
    for policy in path:
        exits = trace.exits(policy)
        observed = loss.observe(trace, exits)
        highest = np.maximum(highest, observed)
        n = len(highest)
        level = (float(highest.sum()) + loss.high) / (n + 1)
        tested.append(_tested(policy, trace, exits, loss.risk(observed), level, level <= limit))
        if level > limit:
            break
    return tested


def cost_of(trace: TraceBase) -> Cost:
    """In layers or, where gates skip parts of them, in operations."""
    return Cost(flops=trace.gates is not None)


def _tested(policy: Policy, trace: TraceBase, exits: Exits, risk: float, level: float, passes: bool) -> Tested:
    return Tested(policy, float(cost_of(trace).observe(trace, exits).mean()), risk, level, passes)


def chosen(tested: Sequence[Tested], cheapest: bool = True) -> Tested | None:
    """Of those that pass the cheapest, or the dearest."""
    passed = [one for one in tested if one.passes]
    return (min if cheapest else max)(passed, key=lambda one: one.cost, default=None)
