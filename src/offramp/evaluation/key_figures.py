"""The few numbers people ask of a curve: what full depth scores, what almost that costs, what half the cost gives."""

from __future__ import annotations

import math
from collections.abc import Iterable

from offramp.evaluation.results import ExitScore, OperatingPoint, Results
from offramp.evaluation.sweep import best_within, cheapest, pareto

AGREEMENT = "agreement"
"""Stands in for the score where there are no labels."""
PERCENTAGES = ("accuracy", "f1", "macro_f1", "accuracy_f1", "exact", AGREEMENT)
"""Metrics that are shares of something; correlations are shown times 100, without a percent sign."""
TITLES = {
    "exact": "exact match",
    "f1": "F1",
    "macro_f1": "macro F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "accuracy_f1": "mean of accuracy and F1",
    "pearson_spearman": "mean of Pearson and Spearman",
    AGREEMENT: "agreement with full depth",
}
POINT = 0.01
SPEED_UPS = (2, 3, 4)


def shown_metrics(results: Results) -> list[str]:
    """What can be drawn: the metrics that were scored, and agreement with full depth."""
    return [*results.full_depth.scores, AGREEMENT]


def main_metric(results: Results) -> str:
    return shown_metrics(results)[0]


def value(point: OperatingPoint | ExitScore, metric: str) -> float:
    """The point's number by that metric; NaN where it has none."""
    return point.agreement if metric == AGREEMENT else point.scores.get(metric, math.nan)


def full_depth(results: Results, metric: str) -> float:
    return value(results.full_depth, metric)


def all_points(results: Results) -> list[OperatingPoint]:
    return [point for sweep in results.sweeps for point in sweep.points]


def front(points: Iterable[OperatingPoint], metric: str) -> list[OperatingPoint]:
    """The Pareto front by a metric, of the points that have it."""
    return pareto((point for point in points if not math.isnan(value(point, metric))), lambda one: value(one, metric))


def cheapest_within(results: Results, metric: str, loss: float = POINT) -> OperatingPoint | None:
    """The cheapest point that scores at most `loss` less than full depth."""
    return cheapest(all_points(results), full_depth(results, metric) - loss, lambda point: value(point, metric))


def best_at(results: Results, metric: str, speed_up: float) -> OperatingPoint | None:
    """The point with the best score of those that need at most 1 / speed_up of the layers."""
    return best_within(all_points(results), 1 / speed_up, lambda point: value(point, metric))


def written(number: float | None, metric: str) -> str:
    """`92.4 %` for a share, `58.3` for a correlation, a dash where there is none."""
    if number is None or math.isnan(number):
        return "–"
    return f"{100 * number:.1f} %" if metric in PERCENTAGES else f"{100 * number:.1f}"


def metric_title(metric: str) -> str:
    """What an axis or a column is called."""
    return TITLES.get(metric, metric)


def key_figures(results: Results, metric: str) -> dict[str, float | None]:
    """One row of a comparison. Area and ELUE score are the best policy's, and belong to the main metric."""
    within = cheapest_within(results, metric)
    own = metric == main_metric(results)
    return {
        "full_depth": _known(full_depth(results, metric)),
        "area": _highest(sweep.area for sweep in results.sweeps) if own else None,
        **{f"score_{times}x": _score(best_at(results, metric, times), metric) for times in SPEED_UPS},
        "cost_at_minus_1": within.cost if within else None,
        "elue": _highest(sweep.elue for sweep in results.sweeps) if own else None,
    }


def _score(point: OperatingPoint | None, metric: str) -> float | None:
    return _known(value(point, metric)) if point else None


def _known(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else number


def _highest(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if _known(number) is not None), default=None)  # type: ignore[type-var]
