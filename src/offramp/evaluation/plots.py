"""What an evaluation found, as images. Colours are Okabe and Ito's, which colour-blind readers can tell apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offramp.errors import needs
from offramp.evaluation.canvas import (
    INK,
    QUIET,
    dress,
    empty_figure,
    figure_with_axes,
    save_figure,
    shortened,
    times_100,
)
from offramp.evaluation.gate_plots import gates_figure
from offramp.evaluation.key_figures import (
    PERCENTAGES,
    POINT,
    all_points,
    best_at,
    cheapest_within,
    front,
    full_depth,
    main_metric,
    metric_title,
    value,
    written,
)
from offramp.evaluation.results import OperatingPoint, Results, Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def write_plots(results: Results | Sequence[Results], folder: Path) -> list[Path]:
    """Write score_cost.png, exits.png and, for one result, histogram.png and, if it has gates, gates.png.

    Several results get a colour each.
    """
    several = [results] if isinstance(results, Results) else list(results)
    figures = {"score_cost.png": score_cost_figure(several), "exits.png": exits_figure(several)}
    if len(several) == 1:
        figures["histogram.png"] = histogram_figure(several[0])
        if several[0].gates:
            figures["gates.png"] = gates_figure(several[0].gates)
    for name, figure in figures.items():
        save_figure(figure, folder / name)
    return [folder / name for name in figures]


def score_cost_figure(results: Sequence[Results]) -> Figure:
    """Score against cost: a curve for each policy of one result, or the Pareto front of each of several.

    Results of one name are runs of one method: thin, and their mean within each budget thick.
    """
    metric = main_metric(results[0])
    figure, axes = figure_with_axes(6.4, 4.4)
    if len(results) == 1:
        lines = _policy_curves(axes, results[0], metric)
    else:
        lines = {}
        for (name, runs), style in _styled(_by_name(results)):
            fronts = [points for run in runs if (points := front(all_points(run), metric))]
            if len(fronts) > 1:
                lines[name] = _mean_front(axes, fronts, metric, style["color"])
            else:
                lines[name] = _curve(axes, fronts[0] if fronts else [], metric, style)
    _cost_axis(axes)
    _score_axis(axes, metric)
    _legend(figure, lines)
    return figure


def exits_figure(results: Sequence[Results]) -> Figure:
    """The score of each exit when it answers for every row."""
    metric = main_metric(results[0])
    figure, axes = figure_with_axes(6.4, 3.9)
    lines = {}
    for (name, runs), style in _styled(_by_name(results)):
        layers = [exit.layer for exit in runs[0].exits]
        scores = np.array([[value(exit, metric) for exit in run.exits] for run in runs])  # (runs, exits)
        if len(runs) > 1:  # from the worst to the best of them
            axes.fill_between(layers, scores.min(0), scores.max(0), color=style["color"], alpha=0.15, lw=0)
        lines[name] = axes.plot(layers, scores.mean(0), lw=1.6, ms=5, mew=0, **style)[0]
        if len(results) == 1:
            _numbers_above(axes, layers, scores[0].tolist())
    _layer_axis(axes, results)
    _score_axis(axes, metric)
    _legend(figure, lines if len(results) > 1 else {})
    return figure


def histogram_figure(results: Results) -> Figure:
    """Where rows leave, at the point that was asked for or at the two that people ask about most."""
    metric = main_metric(results)
    chosen = _points_to_show(results, metric)
    figure = empty_figure(6.4, 1.0 + 2.1 * max(1, len(chosen)))
    panels = figure.subplots(max(1, len(chosen)), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, point) in zip(panels, chosen.items(), strict=False):
        dress(axes)
        shares = [count / max(1, sum(point.exits.values())) for count in point.exits.values()]
        bars = axes.bar(list(point.exits), shares, width=0.72, color=PALETTE[0])
        axes.bar_label(
            bars, [f"{100 * share:.0f}" if share >= 0.005 else "" for share in shares], color=QUIET, fontsize=8
        )
        axes.set_ylim(0, 1.12 * max(shares))
        axes.grid(visible=False, axis="x")
        times_100(axes.yaxis, " %")
        axes.set_ylabel("rows", color=INK)
        axes.set_title(f"{title}\n{_described(point, metric)}", loc="left", fontsize=9, color=INK, parse_math=False)
    _layer_axis(panels[-1], [results], "layer after which a row leaves")
    return figure


def sweep_figure(sweep: Sweep, metric: str, full_depth: float | None = None) -> Figure:
    """One policy's score against cost."""
    figure, axes = figure_with_axes(6.4, 4.0)
    _curve(axes, sweep.points, metric, {"color": PALETTE[0], "marker": MARKERS[0]})
    if full_depth is not None:
        _reference(axes, full_depth, metric)
    _cost_axis(axes)
    _score_axis(axes, metric)
    axes.set_title(sweep.name, loc="left", color=INK, fontsize=10, parse_math=False)
    return figure


def _by_name(results: Sequence[Results]) -> list[tuple[str, list[Results]]]:
    """Results of one name, with the same exits, are runs of one method."""
    groups: dict[tuple[str, tuple[int, ...]], list[Results]] = {}
    for one in results:
        groups.setdefault((one.name, tuple(exit.layer for exit in one.exits)), []).append(one)
    return [(name, runs) for (name, _), runs in groups.items()]


def _mean_front(axes: Axes, fronts: list[list[OperatingPoint]], metric: str, color: str) -> Line2D:
    """Each run's front thin, and their mean: the best score within a budget, budget by budget, averaged."""
    first = max(points[0].cost for points in fronts)
    budgets = np.linspace(first, 1, 101)
    best = []
    for points in fronts:
        costs, scores = [point.cost for point in points], [value(point, metric) for point in points]
        axes.plot(costs, scores, color=color, lw=0.8, alpha=0.4)
        best.append(np.array(scores)[np.searchsorted(costs, budgets, side="right") - 1])
    return axes.plot(budgets, np.mean(best, 0), color=color, lw=2.2)[0]


def _policy_curves(axes: Axes, results: Results, metric: str) -> dict[str, Line2D]:
    best = front(all_points(results), metric)
    lines = {}
    if len(results.sweeps) > 1:
        costs, scores = [point.cost for point in best], [value(point, metric) for point in best]
        lines["Pareto front"] = axes.plot(costs, scores, color="#C9C9C9", lw=7, solid_capstyle="round", zorder=1)[0]
    for (name, points), style in _styled([(sweep.name, sweep.points) for sweep in results.sweeps]):
        lines[name] = _curve(axes, points, metric, style)
    _reference(axes, full_depth(results, metric), metric)
    if results.point:
        _asked(axes, results.point, metric)
    return lines


def _curve(axes: Axes, points: Sequence[OperatingPoint], metric: str, style: dict[str, Any]) -> Line2D:
    costs, scores = [point.cost for point in points], [value(point, metric) for point in points]
    return axes.plot(costs, scores, lw=1.3, ms=3.6, mew=0, zorder=3, **style)[0]


def _reference(axes: Axes, score: float, metric: str) -> None:
    axes.axhline(score, color=QUIET, lw=1, ls=(0, (4, 3)), zorder=2)
    axes.annotate(
        f"full depth {written(score, metric)}",
        (0, score),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        fontsize=8,
        color=QUIET,
    )


def _asked(axes: Axes, point: OperatingPoint, metric: str) -> None:
    at = (point.cost, value(point, metric))
    axes.plot(*at, marker="*", ms=14, color=INK, mec="white", mew=1, zorder=5)
    above = point.cost > 0.4  # where the curves leave room
    gives = f"{written(value(point, metric), metric)} at {100 * point.cost:.0f} % of the layers"
    axes.annotate(
        f"{shortened(point.policy, 40)}\n{gives}",
        at,
        xytext=(-10, 8) if above else (12, -12),
        textcoords="offset points",
        ha="right" if above else "left",
        va="bottom" if above else "top",
        fontsize=8,
        color=INK,
        parse_math=False,
        bbox={"boxstyle": "round,pad=0.3", "fc": "white", "ec": "none", "alpha": 0.85},
        zorder=4,
    )


def _points_to_show(results: Results, metric: str) -> dict[str, OperatingPoint]:
    if results.point:
        return {shortened(results.point.policy): results.point}
    asked = {
        "at most 1 point below full depth": cheapest_within(results, metric, POINT),
        "at most half of the layers": best_at(results, metric, 2),
    }
    found = {f"{shortened(point.policy)}, {why}": point for why, point in asked.items() if point}
    return found or {shortened(point.policy): point for point in all_points(results)[:1]}


def _described(point: OperatingPoint, metric: str) -> str:
    score = written(value(point, metric), metric)
    return f"{metric_title(metric)} {score}, {point.mean_layers:.1f} layers (speed-up {point.speed_up:.1f}×)"


def _styled(curves: Sequence[tuple[str, Any]]) -> list[tuple[tuple[str, Any], dict[str, Any]]]:
    """A colour and a marker for each name: curves of one name (several seeds) look the same."""
    order = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in curves))}
    dashes = ("-", "--", ":")

    def style(number: int) -> dict[str, Any]:
        kind, lap = number % len(PALETTE), number // len(PALETTE)
        return {"color": PALETTE[kind], "marker": MARKERS[kind], "ls": dashes[lap % len(dashes)]}

    return [((name, curve), style(order[name])) for name, curve in curves]


def _cost_axis(axes: Axes) -> None:
    axes.set_xlim(0, 1.02)
    times_100(axes.xaxis, " %")
    axes.set_xlabel("mean layers, share of all layers", color=INK)


def _score_axis(axes: Axes, metric: str) -> None:
    axes.margins(y=0.08)
    axes.set_ylim(top=min(1.03, axes.get_ylim()[1]))
    times_100(axes.yaxis, " %" if metric in PERCENTAGES else "")
    axes.set_ylabel(metric_title(metric) + ("" if metric in PERCENTAGES else " × 100"), color=INK, parse_math=False)


def _layer_axis(axes: Axes, results: Sequence[Results], title: str = "exit after layer") -> None:
    layers = sorted({exit.layer for one in results for exit in one.exits})
    axes.set_xticks(layers[:: math.ceil(len(layers) / 16)])
    air = 0.6 if len(layers) > 2 else 1.5
    axes.set_xlim(min(layers) - air, max(layers) + air)
    axes.set_xlabel(title, color=INK)


def _numbers_above(axes: Axes, layers: list[int], scores: list[float]) -> None:
    halo = needs("matplotlib.patheffects", "report").withStroke(linewidth=2.5, foreground="white")
    style: dict[str, Any] = {"ha": "center", "fontsize": 8, "color": INK, "path_effects": [halo]}
    for layer, score in zip(layers, scores, strict=True):
        if not math.isnan(score):
            axes.annotate(f"{100 * score:.1f}", (layer, score), (0, 7), textcoords="offset points", **style)


def _legend(figure: Figure, lines: dict[str, Line2D]) -> None:
    """Below the axes, in as many columns as the longest name allows. Names are taken as they are: no mathematics."""
    if not lines:
        return
    names = [shortened(name) for name in lines]
    columns = max(1, min(len(names), int(78 / (max(map(len, names)) + 6))))
    legend = figure.legend(
        list(lines.values()), ["x"] * len(names), loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_text(name)
        text.set_parse_math(False)
