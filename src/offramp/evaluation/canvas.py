"""What every plot is drawn on."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import needs
from offramp.whole_file import whole_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, QUIET, GRID, FRAME = "#222222", "#666666", "#E4E4E4", "#999999"
LONGEST_NAME = 64


def empty_figure(width: float, height: float) -> Figure:
    """A figure of its own, away from pyplot's global state, that a notebook still shows."""
    library = needs("matplotlib.figure", "report")

    class Shown(library.Figure):  # type: ignore[misc, name-defined]
        def _repr_png_(self) -> bytes:
            image = BytesIO()
            self.savefig(image, format="png", dpi=110)
            return image.getvalue()

    figure: Figure = Shown(figsize=(width, height), layout="constrained", facecolor="white")
    return figure


def figure_with_axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = empty_figure(width, height)
    axes = figure.add_subplot()
    dress(axes)
    return figure, axes


def save_figure(figure: Figure, path: Path) -> Path:
    """As a PNG for print, whole or not at all."""
    with whole_bytes(path) as file:
        figure.savefig(file, format="png", dpi=200)
    return path


def dress(axes: Axes) -> None:
    axes.grid(color=GRID, lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FRAME)
    axes.tick_params(colors=INK, labelsize=9, color=FRAME)


def times_100(axis: Axis, unit: str) -> None:
    """Shares on an axis, as percent or as whatever the unit is."""
    ticker = needs("matplotlib.ticker", "report")
    axis.set_major_locator(ticker.MaxNLocator(7, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda share, _: f"{100 * share:.4g}{unit}"))


def shortened(name: str, longest: int = LONGEST_NAME) -> str:
    """The name on one line, its middle left out where it is too long: the ends tell runs apart."""
    name = " ".join(name.split())
    if len(name) <= longest:
        return name
    half = (longest - 1) // 2
    return f"{name[:half]}…{name[-half:]}"
