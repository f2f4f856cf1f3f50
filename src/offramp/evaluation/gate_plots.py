"""What gates keep, as two heat maps: layer by head, and layer by block of neurons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from offramp.errors import needs
from offramp.evaluation.canvas import FRAME, INK, QUIET, empty_figure
from offramp.evaluation.results import GateReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

SCALE = ("#EDF3F9", "#A9CBE6", "#5C9FD0", "#1F6FAE", "#083A66")
"""From never kept to always: one hue, even steps of lightness, so that no colour vision is asked of the reader."""
MOST_NUMBERS = 16
"""Heads in a layer whose cells have room for a number."""

Rates = Sequence[Sequence[float | None]]


def gates_figure(gates: GateReport) -> Figure:
    """How many of the inputs keep each head and each block of neurons; what folding deleted is hatched."""
    height = 1.7 + 0.27 * max(4, len(gates.head_rates))
    figure = empty_figure(9.6, height)
    left, right = figure.subplots(1, 2, width_ratios=(5, 6))
    image = _heat_map(left, gates.head_rates, "head")
    if len(gates.head_rates[0]) <= MOST_NUMBERS:
        _write_numbers(left, gates.head_rates)
    _heat_map(right, gates.neuron_rates, "block of neurons")
    left.set_ylabel("layer", color=INK)
    bar = figure.colorbar(image, ax=[left, right], pad=0.015, aspect=12 * height / 3)
    bar.set_ticks([0, 25, 50, 75, 100], labels=["0 %", "25 %", "50 %", "75 %", "100 %"])
    bar.set_label("inputs that keep it", color=INK)
    bar.ax.tick_params(colors=INK, labelsize=9, color=FRAME)
    bar.outline.set_visible(False)
    if any(deleted_runs(row) for row in (*gates.head_rates, *gates.neuron_rates)):
        _explain_hatching(figure)
    return figure


def deleted_runs(rates: Sequence[float | None]) -> list[tuple[int, int]]:
    """Where units of a layer are missing, as (first, how many), 0-based."""
    runs = [(missing, list(group)) for missing, group in groupby(range(len(rates)), lambda unit: rates[unit] is None)]
    return [(units[0], len(units)) for missing, units in runs if missing]


def _heat_map(axes: Axes, rates: Rates, unit: str) -> AxesImage:
    shares = 100 * np.array([[math.nan if rate is None else rate for rate in row] for row in rates])  # (layers, units)
    layers, units = shares.shape
    image = axes.imshow(np.ma.masked_invalid(shares), cmap=_colours(), vmin=0, vmax=100, aspect="auto")
    axes.set_xlabel(unit, color=INK)
    for axis, count in ((axes.xaxis, units), (axes.yaxis, layers)):
        step = math.ceil(count / 16)
        places = sorted({0, *range(step - 1, count, step)})
        axis.set_ticks(places, labels=[str(place + 1) for place in places])
        axis.set_ticks([edge - 0.5 for edge in range(1, count)], minor=True)
    axes.grid(which="minor", color="white", lw=1 if units <= MOST_NUMBERS else 0.5)
    axes.tick_params(which="both", length=0, colors=INK, labelsize=9)
    axes.spines[:].set_visible(False)
    for layer, row in enumerate(rates):
        for first, count in deleted_runs(row):
            axes.add_patch(_hatched((first - 0.5, layer - 0.5), count, 1))
    return image


def _write_numbers(axes: Axes, rates: Rates) -> None:
    """Percent in each cell, light on dark and dark on light."""
    for layer, row in enumerate(rates):
        for unit, rate in enumerate(row):
            if rate is not None:
                colour = "white" if rate >= 0.57 else INK
                axes.text(unit, layer, f"{100 * rate:.0f}", ha="center", va="center", fontsize=7, color=colour)


def _colours() -> Colormap:
    colours: Colormap = needs("matplotlib.colors", "report").LinearSegmentedColormap.from_list("kept", SCALE)
    return colours


def _hatched(corner: tuple[float, float], width: float, height: float) -> Any:
    patches = needs("matplotlib.patches", "report")
    return patches.Rectangle(corner, width, height, fc="white", ec=FRAME, hatch="////", lw=0)


def _explain_hatching(figure: Figure) -> None:
    sample = _hatched((0, 0), 1, 1)
    figure.legend(
        [sample],
        ["deleted by folding; the rest is numbered anew"],
        loc="outside lower left",
        frameon=False,
        fontsize=9,
        labelcolor=QUIET,
    )
