"""Paths: operating points in the order in which they are tested, from hardly leaving to leaving early.

A path is made on rows that nothing is certified on. It need not be right about the risks: it only decides what is
tried, and in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from offramp.calibration.losses import Cost, Inconsistency, Loss
from offramp.calibration.temperature import fit_temperatures
from offramp.evaluation.trace import Trace
from offramp.evaluation.trace_base import TraceBase
from offramp.policies import REGISTRY, Confidence, Entropy, Fixed, Policy
from offramp.policies.base import at_layer
from offramp.policies.threshold import Threshold, signals_of, spread_thresholds

POINTS = 81
"""On a path, at most."""
LEVELS = 24
"""Thresholds that are tried at each layer, where each has its own."""
PRIOR = 0.5
"""Errors that a step is thought to make besides those that were seen: few rows without one are no proof."""
SIGNALS: tuple[type[Threshold], ...] = (Entropy, Confidence)
IN_ADVANCE = tuple(np.concatenate([np.geomspace(0.003, 0.1, 30)[:-1], np.linspace(0.1, 1, 121)]).round(4).tolist())
"""Thresholds of entropy, as a share of the largest there is, that do not depend on any data."""


@dataclass(frozen=True)
class Point:
    """A policy, and what it gave on the rows the path was made on."""

    policy: Policy
    cost: float
    differ: float
    """Share of the answers that are not full depth's."""


@dataclass(frozen=True)
class Path:
    name: str
    points: tuple[Point, ...]
    """From the dearest to the cheapest."""


def path_in_advance(trace: TraceBase) -> tuple[Policy, ...]:
    """A path that needs no rows to be made, so that all can be tested on; none for numbers, of unknown scale.

    The thresholds of layer 1 are `IN_ADVANCE`; deeper exits, which err less, are trusted with more: of n layers,
    layer l has threshold ** (1 - (l - 1) / n).
    """
    if trace.kind == "regression":
        return ()
    trust = 1 - np.arange(trace.depth) / trace.depth
    return tuple(Entropy((threshold**trust).round(4).tolist(), normalised=True) for threshold in IN_ADVANCE)


def paths(trace: TraceBase, loss: Loss) -> Iterator[Path]:
    """One for each rule and, where there is a label to leave with, for thresholds of each layer's own."""
    for rule in REGISTRY.values():
        if trace.kind in rule.tasks and rule is not Fixed:
            if issubclass(rule, Threshold):
                yield Path(rule.name, _ordered(trace, _scalar(trace, rule(0.0))))
            elif candidates := rule.candidates(trace.tensor, trace.exit_layers, trace.kind):
                yield Path(rule.name, _front(trace, candidates))
    if isinstance(trace, Trace) and trace.kind == "classification" and len(trace.exit_layers) > 1:
        temperatures = temperatures_of(trace)
        for rule in SIGNALS:
            scaled = replace(rule(0.0), temperature=temperatures)
            yield Path(f"{rule.name}, temperatures", _ordered(trace, _scalar(trace, scaled)))
            if rule is Entropy or len(trace.label_names) > 2:  # of two labels it is the same in another unit
                yield Path(f"{rule.name}, each layer its own", _ordered(trace, _by_layer(trace, scaled, loss)))


def temperatures_of(trace: Trace) -> tuple[float, ...]:
    """One for each layer of the backbone; where there are no labels, full depth's answers stand for them."""
    labels = trace.full_depth if trace.labels is None else trace.labels
    by_exit = dict(zip(trace.exit_layers, fit_temperatures(trace.logits, labels), strict=True))
    return tuple(float(by_exit.get(layer, 1.0)) for layer in range(1, trace.depth + 1))


def _ordered(trace: TraceBase, policies: Sequence[Policy]) -> tuple[Point, ...]:
    """Policies that decide differently, the dearest first."""
    points: dict[bytes, Point] = {}
    for policy in policies:
        exits = trace.exits(policy)
        differ = float(Inconsistency().observe(trace, exits).mean())
        point = Point(policy, float(Cost().observe(trace, exits).mean()), differ)
        points.setdefault(exits.astype(np.int8).tobytes(), point)
    ordered = sorted(points.values(), key=lambda point: (-point.cost, point.differ))
    return tuple(_spaced([(point.cost, point) for point in ordered]))


def _front(trace: TraceBase, policies: Sequence[Policy]) -> tuple[Point, ...]:
    """Of rules with several numbers, the policies that no other beats in cost and agreement with full depth."""
    front: list[Point] = []
    for point in sorted(_ordered(trace, policies), key=lambda point: (point.differ, point.cost)):
        if not front or point.cost < front[-1].cost:
            front.append(point)
    return tuple(front)


def _spaced(found: Sequence[tuple[float, Any]]) -> list[Any]:
    """Of things with their costs, in order, as many as fit on a path, about evenly spaced in cost."""
    costs = np.array([cost for cost, _ in found])
    wanted = np.linspace(costs[0], costs[-1], POINTS) if len(found) > POINTS else costs
    return [found[place][1] for place in sorted({int(np.abs(costs - cost).argmin()) for cost in wanted})]


def _scalar(trace: TraceBase, rule: Threshold) -> list[Policy]:
    signals = signals_of(rule, trace.tensor, trace.exit_layers)
    thresholds = spread_thresholds(signals, trace.exit_layers, above=rule.above, points=POINTS)
    return [replace(rule, threshold=threshold) for threshold in thresholds]


def _by_layer(trace: Trace, rule: Threshold, loss: Loss) -> list[Policy]:
    """Thresholds that are raised one layer at a time, always where the most layers are saved for each error.

    The signals of an exit fall into LEVELS parts of equally many rows. To raise its threshold by some parts lets the
    rows go that are in them and would have left later.
    """
    signals = signals_of(rule, trace.tensor, trace.exit_layers).numpy() * (-1 if rule.above else 1)  # (E-1, N)
    layers = np.asarray(trace.exit_layers)
    losses = _expected_errors(trace, rule, loss)  # (E, N)
    edges = np.quantile(signals, np.linspace(0, 1, LEVELS + 1)[1:], axis=1).T  # (E-1, LEVELS)
    part = np.stack([np.searchsorted(own, row) for own, row in zip(edges, signals, strict=True)])  # ties go down
    levels, now = np.zeros(len(signals), int), np.full(len(trace), len(layers) - 1)

    def step(exit: int) -> tuple[float, int, int]:
        """The least errors for each layer saved that raising an exit's threshold costs, and how far to raise it.

        Rows that are sure at one exit are mostly gone by the one before: its first parts may be all but empty.
        """
        rows = np.flatnonzero((part[exit] >= levels[exit]) & (now > exit))
        saved = np.bincount(part[exit, rows], layers[now[rows]] - layers[exit], LEVELS).cumsum()
        errors = np.bincount(part[exit, rows], losses[exit, rows] - losses[now[rows], rows], LEVELS).cumsum()
        prices = np.where(saved > 0, (errors + PRIOR) / np.maximum(saved, 1e-9), np.inf)[levels[exit] :]
        best = int(prices.argmin()) if len(prices) else 0
        return (float(prices[best]) if len(prices) else np.inf), exit, int(levels[exit]) + best + 1

    found = [(float(layers[-1]), levels.copy())]
    while True:
        price, exit, level = min(step(exit) for exit in range(len(levels)))
        if not np.isfinite(price):
            break
        now[(part[exit] < level) & (now > exit)] = exit
        levels[exit] = level
        found.append((float(layers[now].mean()), levels.copy()))
    return [_thresholds(rule, trace, edges, some) for some in _spaced(found)]


def _expected_errors(trace: Trace, rule: Threshold, loss: Loss) -> NDArray[np.float64]:
    """What each exit's answer to each row is expected to lose (E, N).

    Where consistency is promised, that it is not full depth's answer. Otherwise what the last exit, at its temperature,
    thinks that the answer is less likely to be right: that says more about a row than its one label.
    """
    answers = [logits.argmax(-1) for logits in trace.logits]
    if isinstance(loss, Inconsistency):
        return np.stack([answer != trace.full_depth for answer in answers]).astype(np.float64)
    last = special.softmax(trace.logits[-1] / at_layer(rule.temperature, trace.depth), axis=-1)  # (N, C)
    rows = np.arange(len(trace))
    return np.stack([last[rows, trace.full_depth] - last[rows, answer] for answer in answers])


def _thresholds(rule: Threshold, trace: Trace, edges: NDArray[np.float64], levels: NDArray[np.int64]) -> Policy:
    """The policy of some levels; a layer without an exit, or whose exit is not used, has a threshold nobody passes."""
    never = 2.0 if rule.above else -1.0
    numbers = [never] * trace.depth
    for exit, level in enumerate(levels):
        if level:
            numbers[trace.exit_layers[exit] - 1] = _rounded(edges[exit, level - 1], rule.above)
    return replace(rule, threshold=tuple(numbers))


def _rounded(edge: float, above: bool) -> float:
    """An edge as a threshold, a little beyond it, so that the row it was taken from leaves."""
    return float(round((-edge - 5e-7) if above else (edge + 5e-7), 6))
