"""The measurements as one image: a panel for each batch size, a bar for each contestant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offramp.bench.results import OURS, BenchResults, Workload
from offramp.evaluation.canvas import INK, QUIET, dress, empty_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EXITS, FULL_DEPTH, RIVAL = "#0072B2", "#8CBFDD", "#BDBDBD"


def draw(results: BenchResults, path: Path) -> None:
    save_figure(bench_figure(results), path)


def bench_figure(results: BenchResults) -> Figure:
    """Texts a second. Every contestant has its line, whether or not it was measured at that batch size."""
    fullest = max(results.workloads, key=lambda workload: len(workload.timings))
    names = [timing.name for timing in fullest.timings]
    panels = len(results.workloads)
    figure = empty_figure(max(6.4, 2.1 + 2.0 * panels), 1.5 + 0.3 * len(names))
    for axes, workload in zip(
        figure.subplots(1, panels, sharey=True, squeeze=False)[0], results.workloads, strict=True
    ):
        _panel(axes, workload, names)
    machine = results.settings.get("machine", {})
    where = machine.get("gpu") or f"{machine.get('processor', 'CPU')}, {machine.get('threads', '?')} threads"
    title = f"{results.model}: texts a second, {results.mean_tokens:.0f} tokens each on average, on {where}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK, parse_math=False)
    return figure


def _panel(axes: Axes, workload: Workload, names: list[str]) -> None:
    dress(axes)
    places = {name: len(names) - 1 - place for place, name in enumerate(names)}
    shown = [timing.name for timing in workload.timings]
    rates = [timing.texts_per_second for timing in workload.timings]
    bars = axes.barh([places[name] for name in shown], rates, height=0.72, color=[colour(name) for name in shown])
    labels = axes.bar_label(bars, [rate_text(rate) for rate in rates], padding=3, fontsize=8, color=INK)
    labels[shown.index(workload.fastest)].set_fontweight("bold")
    axes.set_yticks(list(places.values()), list(places), fontsize=9)
    axes.set_xlim(0, 1.32 * max(rates))  # room for the numbers
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)
    axes.set_title(workload.title, loc="left", fontsize=9.5, color=INK, pad=16)
    gains = ", ".join(f"{gain.precision} {gain.speed_up:.2f}×" for gain in workload.gains)
    axes.annotate(
        f"by exits: {gains}",
        (0, 1),
        (0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=QUIET,
    )


def colour(name: str) -> str:
    if not name.startswith(OURS):
        return RIVAL
    return EXITS if name.endswith("exits") else FULL_DEPTH


def rate_text(rate: float) -> str:
    if rate >= 10_000:
        return f"{rate / 1000:,.0f}k"
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
