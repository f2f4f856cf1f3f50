"""The plot and the table of a calibration: every point of the path is where it belongs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from offramp.calibration import Calibration, Promise, calibrate_trace
from offramp.calibration.losses import AccuracyGap, Cost, F1Gap, Inconsistency
from offramp.calibration.plot import FAILED, NOT_REACHED, PASSED, calibration_figure, spots_of, write_plot
from offramp.calibration.tables import calibration_table
from offramp.evaluation import Trace

TRACES = Path(__file__).parents[2] / "benchmarks" / "traces"
PROMISES = {
    "accuracy": Promise(AccuracyGap(), 0.02),
    "differ": Promise(Inconsistency(), 0.03),
    "bonferroni": Promise(Inconsistency(), 0.05, 0.9, "bonferroni"),
    "expectation": Promise(Inconsistency(), 0.02, 0.95, "expectation"),
    "f1": Promise(F1Gap(), 0.03),
    "cost": Promise(Cost(), 0.5),
    "flops": Promise(Cost(flops=True), 0.6),
}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Trace.load(TRACES / "sst2.npz").take(np.arange(2000))


@pytest.fixture(scope="module", params=PROMISES)
def found(request: pytest.FixtureRequest, trace: Trace) -> Calibration:
    return calibrate_trace(trace, PROMISES[request.param])


def printed(found: Calibration, width: int) -> str:
    console = Console(width=width, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(calibration_table(found))
    return capture.get()


def test_points_of_the_path(found: Calibration) -> None:
    spots = list(spots_of(found))
    about_cost = isinstance(found.promise.loss, Cost)
    tested = spots[: len(found.tested)]
    assert [spot.fate for spot in tested] == [PASSED if one.passes else FAILED for one in found.tested]
    limited = [spot.cost if about_cost else spot.loss for spot in tested]
    assert limited == [one.risk for one in found.tested]
    assert all(spot.fate == NOT_REACHED for spot in spots[len(tested) :])
    if found.promise.method == "fixed_sequence":
        assert [spot.fate for spot in tested].count(FAILED) <= 1
    chosen = next(spot for spot in spots if spot.policy == found.policy)
    assert chosen.fate == PASSED
    assert all(0 <= spot.cost <= 1 for spot in spots)


def test_the_figure_shows_limit_bound_and_choice(found: Calibration, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = calibration_figure(found)
    (axes,) = figure.axes
    about_cost = isinstance(found.promise.loss, Cost)
    lines = {line.get_marker(): line for line in axes.lines}
    star, cap = lines["*"], lines["|" if about_cost else "_"]
    ends = cap.get_xdata() if about_cost else cap.get_ydata()
    assert tuple(ends) == pytest.approx((found.risk, found.bound))
    assert (star.get_xdata() if about_cost else star.get_ydata())[0] == pytest.approx(found.risk)
    limit = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [(line.get_xdata() if about_cost else line.get_ydata())[0] for line in limit] == [found.promise.limit] * len(
        limit
    )
    assert limit
    assert axes.get_title(loc="left").startswith(str(found.promise))
    assert {text.get_text() for text in figure.legends[0].get_texts()} >= {"passed", "chosen"}
    path = write_plot(found, tmp_path / "calibration")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_words_do_not_overlap(found: Calibration) -> None:
    """The name of the limit, the title, the legend and the numbers on the axes each have their place."""
    pytest.importorskip("matplotlib")
    figure = calibration_figure(found)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [text.get_window_extent() for text in axes.texts]
    boxes += [axes.xaxis.label.get_window_extent(), axes.yaxis.label.get_window_extent()]
    boxes += [axes._left_title.get_window_extent(), figure.legends[0].get_window_extent()]  # type: ignore[attr-defined]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_says_what_is_lost_and_saved(found: Calibration, width: int) -> None:
    text = printed(found, width)
    assert max(map(len, text.splitlines())) <= width
    for number in (f"{found.point.mean_layers:.2f}", f"{found.point.speed_up:.2f}×", f"{found.point.cost:.3f}"):
        assert number in text
    assert f"limit{100 * found.promise.limit:g} %" in text.replace(" ", "").replace("%", " %")


def test_without_labels_agreement_is_what_is_shown(trace: Trace) -> None:
    found = calibrate_trace(replace(trace, labels=None), PROMISES["differ"])
    text = printed(found, 80)
    assert "accuracy" not in text
    assert "agreement with full depth" in text
    assert "answers that differ, seen" in text
