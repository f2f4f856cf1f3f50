"""How a policy was found, as one image: what each point of the path costs and loses, and where the limit is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offramp.calibration.calibrate import Calibration, quality
from offramp.calibration.certify import cost_of
from offramp.calibration.losses import Cost
from offramp.calibration.tables import bound_name, loss_name, shown_metric
from offramp.evaluation.canvas import INK, QUIET, figure_with_axes, save_figure, shortened, times_100
from offramp.evaluation.key_figures import metric_title
from offramp.policies import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLOT = "plot.png"
PASSED, FAILED, NOT_REACHED = "passed", "failed", "not reached"
LOOKS: dict[str, dict[str, Any]] = {
    PASSED: {"marker": "o", "color": "#0072B2", "ms": 4.5, "mew": 0},
    FAILED: {"marker": "X", "color": "#D55E00", "ms": 8, "mew": 0},
    NOT_REACHED: {"marker": "o", "color": "#A8A8A8", "ms": 4.5, "mew": 1, "mfc": "white"},
}
ROOM = 2.0
"""Times the limit: as far as points are shown."""


@dataclass(frozen=True)
class Spot:
    """A point of the path, where it is drawn."""

    policy: Policy
    cost: float
    loss: float
    fate: str


def write_plot(found: Calibration, folder: Path) -> Path:
    return save_figure(calibration_figure(found), folder / PLOT)


def calibration_figure(found: Calibration) -> Figure:
    """Cost against loss of every point of the path, with the limit and the point that was chosen."""
    about_cost = isinstance(found.promise.loss, Cost)
    figure, axes = figure_with_axes(6.4, 4.4)
    spots = [spot for spot in spots_of(found) if _is_near(spot, found)]
    here = next(spot for spot in spots if spot.policy == found.policy)
    axes.plot([spot.cost for spot in spots], [spot.loss for spot in spots], color="#C9C9C9", lw=1, zorder=2)
    lines = {}
    for fate, look in LOOKS.items():
        if some := [spot for spot in spots if spot.fate == fate]:
            lines[fate] = axes.plot([one.cost for one in some], [one.loss for one in some], ls="", zorder=3, **look)[0]
    if not about_cost:
        lines["full depth"] = axes.plot(1, 0, ls="", marker="s", ms=7, color=INK, mfc="white", zorder=4)[0]
    _limit(axes, found.promise.limit, about_cost)
    reach = ([here.cost, found.bound], [here.loss] * 2) if about_cost else ([here.cost] * 2, [here.loss, found.bound])
    cap = {"marker": "|" if about_cost else "_", "ms": 10, "mew": 1.6, "markevery": [1]}
    lines["chosen"] = axes.plot(here.cost, here.loss, ls="", marker="*", ms=13, color=INK, mec="white", zorder=5)[0]
    bar = axes.plot(*reach, color=INK, lw=1.6, zorder=6, **cap)[0]  # type: ignore[arg-type]
    lines[bound_name(found)] = bar
    _name_axes(axes, found)
    _title(axes, found)
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def _is_near(spot: Spot, found: Calibration) -> bool:
    """To the limit: what lies far from it would press the others together. The chosen point always is."""
    limit = found.promise.limit
    if isinstance(found.promise.loss, Cost):
        return spot.policy == found.policy or limit / ROOM <= spot.cost <= limit * ROOM
    return spot.loss <= limit * ROOM


def spots_of(found: Calibration) -> Iterator[Spot]:
    """In the order of the path. Where the promise is about cost, what is lost is of the score, or of agreement."""
    trace, loss = found.trace, found.promise.loss
    assert trace is not None
    full = found.full.agreement if found.full.score is None else found.full.score
    for one in found.tested:
        fate = PASSED if one.passes else FAILED
        if isinstance(loss, Cost):
            yield Spot(one.policy, one.risk, full - quality(trace, one.policy), fate)
        else:
            yield Spot(one.policy, one.cost, one.risk, fate)
    for policy in found.not_reached:
        exits = trace.exits(policy)
        risk = loss.risk(loss.observe(trace, exits))
        if risk > ROOM * found.promise.limit:
            break  # and so on
        if isinstance(loss, Cost):
            yield Spot(policy, risk, full - quality(trace, policy), NOT_REACHED)
        else:
            yield Spot(policy, float(cost_of(trace).observe(trace, exits).mean()), risk, NOT_REACHED)


def _limit(axes: Axes, limit: float, about_cost: bool) -> None:
    (axes.axvline if about_cost else axes.axhline)(limit, color=QUIET, lw=1, ls=(0, (4, 3)), zorder=2)
    axes.annotate(
        f"limit {100 * limit:g} %",
        (limit, 1) if about_cost else (1, limit),
        xycoords=("data", "axes fraction") if about_cost else ("axes fraction", "data"),
        xytext=(4, -4) if about_cost else (-4, 4),
        ha="left" if about_cost else "right",
        va="top" if about_cost else "bottom",
        textcoords="offset points",
        fontsize=9,
        color=QUIET,
    )


def _name_axes(axes: Axes, found: Calibration) -> None:
    loss = found.promise.loss
    in_flops = loss.flops if isinstance(loss, Cost) else found.trace is not None and cost_of(found.trace).flops
    axes.set_xlabel("operations, share of full depth's" if in_flops else "mean layers, share of all layers", color=INK)
    lost = f"{metric_title(shown_metric(found))} lost" if isinstance(loss, Cost) else loss_name(found)
    axes.set_ylabel("answers that differ" if found.full.score is None else lost, color=INK, parse_math=False)
    axes.margins(x=0.04, y=0.08)
    for axis in (axes.xaxis, axes.yaxis):
        times_100(axis, " %")


def _title(axes: Axes, found: Calibration) -> None:
    gives = f"{100 * found.point.cost:.0f} % of the layers, {found.point.speed_up:.1f}×"
    lines = f"{found.promise}\n{shortened(str(found.policy), 60)}: {gives}"
    axes.set_title(lines, loc="left", fontsize=9, color=INK, parse_math=False)
