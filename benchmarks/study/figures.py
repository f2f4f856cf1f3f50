"""The page's figures: scores of the exits, and score against layers or time with intervals; a panel for each task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.study.curves import Estimate
from benchmarks.study.grid import StudyTask
from benchmarks.study.summary import CASCADE, STATIC, Summary
from offramp.evaluation.canvas import INK, dress, empty_figure, times_100

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 4
BUDGETS = 61
STYLES: dict[str, dict[str, Any]] = {
    STATIC: {"color": "#6B6B6B", "marker": "*", "ms": 8, "ls": "none"},
    CASCADE: {"color": "#6B6B6B", "ls": "--"},
    "deebert": {"color": "#56B4E9"},
    "romebert": {"color": "#CC79A7"},
    "elasticbert": {"color": "#009E73"},
    "elbert-dynamic": {"color": "#E69F00"},
    "ebert+elasticbert": {"color": "#D55E00", "ls": ":"},
    "offramp": {"color": "#0072B2", "lw": 2.4, "zorder": 4},
}
"""Of the methods that are drawn; the tables have all of them."""
PNG = {"Software": None}
"""No version in the file: the same numbers give the same bytes."""

Draw = Callable[["Axes", Summary, StudyTask, str], Any]


def exit_scores(axes: Axes, summary: Summary, task: StudyTask, method: str) -> Any:
    """A line over the exits of a method; stars for static models."""
    if method == CASCADE:
        return None
    known = by_layer(summary, task, method)
    return banded(axes, list(known), list(known.values()), method)


def score_against_cost(axes: Axes, summary: Summary, task: StudyTask, method: str) -> Any:
    """The mean curve over seeds, budget by budget; static models as they are, and not what lies between them."""
    known = by_share(summary, task, method)
    return banded(axes, list(known), list(known.values()), method)


def score_against_time(times: dict[str, float]) -> Draw:
    """The same over milliseconds a text: of static models and cascades a row asks one exit of each model, of others
    the exit of every layer it runs.
    """

    def draw(axes: Axes, summary: Summary, task: StudyTask, method: str) -> Any:
        depth, known = summary.backbone.depth, by_share(summary, task, method)
        exits = 0.0 if method in (STATIC, CASCADE) else times["exit"]
        once = times["fixed"] + (times["exit"] if method in (STATIC, CASCADE) else 0.0)
        places = [once + share * depth * (times["layer"] + exits) for share in known]
        return banded(axes, places, list(known.values()), method)

    return draw


def by_share(summary: Summary, task: StudyTask, method: str) -> dict[float, Estimate]:
    """The score by the share of layers that is run."""
    depth = summary.backbone.depth
    if method == STATIC:
        return {layer / depth: one for layer, one in by_layer(summary, task, method).items()}
    budgets = np.linspace(1 / depth, 1, BUDGETS).tolist()
    found = [summary.over_seeds(summary.at_speed_up("layers", 1 / budget), task.name, method) for budget in budgets]
    return {budget: one for budget, one in zip(budgets, found, strict=True) if one}


def by_layer(summary: Summary, task: StudyTask, method: str) -> dict[int, Estimate]:
    """The score after each layer that has one."""
    found = {
        layer: summary.over_seeds(summary.exit_score(layer), task.name, method)
        for layer in range(1, summary.backbone.depth + 1)
    }
    return {layer: one for layer, one in found.items() if one}


def banded(axes: Axes, places: Sequence[float], found: Sequence[Estimate], method: str) -> Any:
    """A line, and where its mean may lie; of static models, stars."""
    if not found:
        return None
    style = {"lw": 1.3, "marker": "", **STYLES[method]}
    means = np.array([one.mean for one in found])
    widths = np.array([one.half_width or 0.0 for one in found])
    if method != STATIC:
        axes.fill_between(places, means - widths, means + widths, color=style["color"], alpha=0.1, lw=0)
    return axes.plot(places, means, mew=0, **style)[0]


def panels(summary: Summary, draw: Draw, along: str, tasks: Sequence[StudyTask] = ()) -> Any:
    """A panel for each task and a legend in the place of the last."""
    tasks = tasks or summary.tasks
    rows = -(-(len(tasks) + 1) // COLUMNS)
    figure = empty_figure(3.3 * COLUMNS, 2.7 * rows)
    lines: dict[str, Any] = {}
    for number, task in enumerate(tasks, 1):
        axes = figure.add_subplot(rows, COLUMNS, number)
        dress(axes)
        for method in (one for one in STYLES if one in summary.methods):
            line = draw(axes, summary, task, method)
            if line is not None:
                lines.setdefault(method, line)
        axes.set_title(task.title, loc="left", fontsize=10, color=INK)
        axes.set_xlabel(along, fontsize=9, color=INK)
        times_100(axes.yaxis, "")
        axes.set_ylim(*limits(axes))
    if lines:
        place = figure.add_subplot(rows, COLUMNS, len(tasks) + 1)
        place.set_axis_off()
        place.legend(list(lines.values()), list(lines), loc="center left", frameon=False, fontsize=9)
    return figure


def limits(axes: Axes) -> tuple[float, float]:
    """From the lines alone: wide intervals, and exits that guess, would flatten everything."""
    values = [value for line in axes.get_lines() for value in np.asarray(line.get_ydata(), dtype=float)]
    if not values:
        return 0.0, 1.0
    low, high = float(np.percentile(values, 2)), max(values)
    room = max(0.02, 0.08 * (high - low))
    return low - room, high + room


FIGURES: dict[str, tuple[Draw, str]] = {
    "exits": (exit_scores, "exit after layer"),
    "score_cost": (score_against_cost, "mean layers, share of all"),
}


FRONT = "study_front.png"
FRONT_TASKS = ("sst-2", "imdb", "mnli-small")
FRONT_SETTING, FRONT_TICKS = "CPU, int8, batch 1", (0.25, 0.5, 1, 2)
"""The one figure of the README: these tasks, over the time a text takes."""


def write_front_figure(summary: Summary, times: dict[str, Any], folder: Path) -> None:
    tasks = [task for task in summary.tasks if task.name in FRONT_TASKS]
    figure = panels(summary, score_against_time(times[FRONT_SETTING]), "ms a text, CPU, int8", tasks)
    for axes in figure.axes[: len(tasks)]:  # all that is decided is decided below one millisecond
        axes.set_xscale("log")
        axes.set_xticks(FRONT_TICKS, list(map(str, FRONT_TICKS)))
        axes.minorticks_off()
    figure.savefig(folder / FRONT, dpi=120, metadata=PNG, bbox_inches="tight")


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """The figures of a backbone; none where there is nothing to draw."""
    if not summary.cells:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (draw, along) in FIGURES.items():
        paths.append(folder / f"study_{summary.backbone.name}_{name}.png")
        panels(summary, draw, along).savefig(paths[-1], dpi=110, metadata=PNG)
    return paths
