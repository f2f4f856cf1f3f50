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


def certify_each(
    path: Sequence[Policy], trace: TraceBase, loss: Loss, limits: Sequence[float], confidence: float, method: str
) -> list[list[Tested]]:
    """The points that were tested for each limit, in the order of the path: what is seen is looked at once for all.

    fixed_sequence: each is tested with the whole error that is allowed, until one fails; none after it counts. If the
        loss is over the limit anywhere, the first such point passes by mistake with that probability at most, and
        without it nobody comes further (Angelopoulos et al., 2021; on a front: Laufer-Goldshtein et al., 2023).
    bonferroni: all are tested, each with its part of the error.
    expectation: conformal risk control (Angelopoulos et al., 2022). The loss on a new row is below the limit on average
        over calibration sets; a loss that falls along the path counts as if it had stayed.
    """
    in_expectation = method == "expectation"
    if in_expectation and not loss.is_mean:
        raise OfframpError(f"{loss.name} is no mean over answers: it cannot be limited in expectation")
    error = (1 - confidence) / (len(path) if method == "bonferroni" else 1)
    tested: list[list[Tested]] = [[] for _ in limits]
    going = set(range(len(limits)))
    highest = np.full(trace.answers, loss.low)
    for policy in path:
        exits = trace.exits(policy)
        observed = loss.observe(trace, exits)
        highest = np.maximum(highest, observed) if in_expectation else highest
        cost, risk = share_computed(trace, exits), loss.risk(observed)
        for place in sorted(going):
            if in_expectation:
                level, allowed = (float(highest.sum()) + loss.high) / (len(highest) + 1), limits[place]
            else:
                level, allowed = loss.pvalue(observed, limits[place]), error
            tested[place].append(Tested(policy, cost, risk, level, level <= allowed))
            if method != "bonferroni" and level > allowed:
                going.remove(place)
        if not going:
            break
    return tested


def cost_of(trace: TraceBase) -> Cost:
    """In layers or, where gates skip parts of them, in operations."""
    return Cost(flops=trace.gates is not None)


def share_computed(trace: TraceBase, exits: Exits) -> float:
    """Of full depth, so counted, by all answers together."""
    cost = cost_of(trace)
    return cost.risk(cost.observe(trace, exits))
