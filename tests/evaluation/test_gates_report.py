"""What gates keep, as it is shown: on the terminal, as an image, on the page and in comparisons."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from offramp.evaluation.comparison import compare
from offramp.evaluation.gate_plots import SCALE, deleted_runs, gates_figure
from offramp.evaluation.report import DARK_SCALE, write_report
from offramp.evaluation.results import GateReport, Results
from offramp.evaluation.tables import gates_table
from offramp.evaluation.writing import write_results
from tests.command_line import Result
from tests.evaluation.made_traces import gated_trace, random_trace
from tests.evaluation.sample_results import sample_gates, sample_results

FEW = {"points": 8, "rows": 60}
FOLDED = GateReport(
    original_gflops=5.594,
    dynamic_gflops=3.412,
    ratio=0.61,
    heads=[0.625, 0.25],
    neurons=[1.0, 0.5],
    head_rates=[[1.0, 0.5, 0.9, 0.1], [0.75, None, 0.25, None]],
    neuron_rates=[[1.0, 1.0, 1.0], [0.75, None, None]],
)


def gated(name: str = "ebert", gates: GateReport = FOLDED, **settings: Any) -> Results:
    return sample_results(name, gates=gates, **{**FEW, **settings})


def printed(table: Any) -> list[list[str]]:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines() if line.strip()]


def test_table() -> None:
    lines = printed(gates_table(FOLDED))
    assert ["GFLOPs", "(EBERT)", "5.59", "3.41", "0.610"] in lines
    assert lines[-2:] == [["1", "62.5", "%", "100.0", "%"], ["2", "25.0", "%", "50.0", "%"]]


def test_evaluate_prints_the_table_of_gated_models_only(run: Callable[..., Result], tmp_path: Path) -> None:
    for trace, shown in ((gated_trace(), True), (random_trace(), False)):
        path = trace.save(tmp_path / "trace.npz")
        done = run("evaluate", "--trace", path, "--no-report")
        assert done.status == 0, done.err
        assert ("Gates, at full depth" in done.out) == shown


# The image


@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
@pytest.mark.parametrize(
    "gates",
    [FOLDED, sample_gates(), sample_gates(24, 16, 64, deleted=True), sample_gates(1, 1, 1), sample_gates(2, 40, 5)],
    ids=["folded", "base", "large", "one unit", "many heads"],
)
def test_image_shows_every_rate(gates: GateReport) -> None:
    figure = gates_figure(gates)
    figure.canvas.draw()
    left, right = figure.axes[:2]
    for axes, rates in ((left, gates.head_rates), (right, gates.neuron_rates)):
        shown = axes.images[0].get_array().filled(math.nan)
        there = np.array([[math.nan if rate is None else 100 * rate for rate in row] for row in rates])
        np.testing.assert_array_equal(shown, there)
        assert axes.images[0].get_clim() == (0, 100)
        hatched = [(p.get_x() + 0.5, p.get_y() + 0.5, p.get_width()) for p in axes.patches if p.get_hatch()]
        assert hatched == [(first, y, count) for y, row in enumerate(rates) for first, count in deleted_runs(row)]
    assert (left.get_xlabel(), right.get_xlabel(), left.get_ylabel()) == ("head", "block of neurons", "layer")
    numbers = [f"{100 * rate:.0f}" for row in gates.head_rates for rate in row if rate is not None]
    assert [text.get_text() for text in left.texts] == (numbers if len(gates.head_rates[0]) <= 16 else [])
    deleted = any(None in row for row in (*gates.head_rates, *gates.neuron_rates))
    assert [legend.get_texts()[0].get_text()[:18] for legend in figure.legends] == ["deleted by folding"] * deleted


@pytest.mark.parametrize("scale", [SCALE, DARK_SCALE], ids=["light", "dark"])
def test_colours_tell_by_lightness_alone(scale: tuple[str, ...]) -> None:
    """So any colour vision, and a grey printer, can read them; steps are even within a factor of two."""
    linear = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in scale])
    linear = np.where(linear <= 0.04045, linear / 12.92, ((linear + 0.055) / 1.055) ** 2.4)
    steps = np.diff(116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16)
    assert (np.sign(steps) == np.sign(steps[0])).all()
    assert abs(steps).max() < 2 * abs(steps).min()


def test_deleted_runs() -> None:
    assert deleted_runs([None, 0.0, None, None, 1.0]) == [(0, 1), (2, 2)]
    assert deleted_runs([0.0, 1.0]) == []


def test_files(tmp_path: Path) -> None:
    assert tmp_path / "gates.png" in write_results(gated(), tmp_path)
    assert (tmp_path / "gates.png").read_bytes().startswith(b"\x89PNG")
    assert tmp_path / "gates.png" not in write_results(sample_results(**FEW), tmp_path)
    assert not (tmp_path / "gates.png").exists(), "of another model"


# The page


def drawn(page: Any, chart: str, what: str) -> Any:
    return page.locator(f"#gates-{chart}").evaluate(f"chart => chart.data.map(trace => trace.{what})")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page(width: int, scheme: str, tmp_path: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(write_report([gated(gates=FOLDED)], tmp_path / "report.html"), width, scheme)
    words = page.locator("#gates-words").inner_text().replace("\u00a0", " ")
    assert "3.41 GFLOPs" in words
    assert "instead of 5.59 with every head and neuron: 61.0 %" in words
    assert page.locator("#gates-deleted").is_visible()
    assert not page.locator("#gates-of").is_visible()
    assert drawn(page, "heads", "z")[0] == [[100, 50, 90, 10], [75, None, 25, None]]
    assert drawn(page, "neurons", "z")[0] == [[100, 100, 100], [75, None, None]]
    bars = [drawn(page, "neurons", what)[1] for what in ("x", "base", "width")]
    assert bars == [[2.5], [1.5], [2]], "the hatching of blocks 2 and 3 in layer 2"
    assert drawn(page, "heads", "text")[2] == ["100", "50", "90", "10", "75", "25"]
    scale = drawn(page, "heads", "colorscale")[0]
    assert [colour for _, colour in scale] == list(DARK_SCALE if scheme == "dark" else SCALE)
    assert "layer 2 keeps 25.0" in page.locator("#gates-heads").get_attribute("aria-label")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_hover(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(write_report([gated()], tmp_path / "report.html"))
    page.locator("#gates-heads").scroll_into_view_if_needed()
    box = page.locator("#gates-heads .nsewdrag").bounding_box()

    def over(head: int, layer: int) -> str:
        page.mouse.move(box["x"] + (head - 0.5) / 4 * box["width"], box["y"] + (layer - 0.5) / 2 * box["height"])
        page.wait_for_function(
            f"document.querySelector('#gates-heads .hovertext')?.textContent.includes('layer {layer}')"
        )
        text: str = page.locator("#gates-heads .hovertext").text_content()
        return text.replace("\u00a0", " ")

    first = over(2, 1)
    assert "layer 1, head 2" in first
    assert "kept for 50.0 % of the inputs" in first
    assert "layer 1 keeps 62.5 % of its heads" in first
    assert "1 of 4 deleted by folding" in over(2, 2)


def test_numbers_in_cells_only_where_there_is_room(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(write_report([gated(gates=sample_gates(heads=16))], tmp_path / "report.html"))
    assert len(drawn(page, "heads", "text")[2]) == 12 * 16
    page.set_viewport_size({"width": 360, "height": 900})
    page.wait_for_function("document.getElementById('gates-heads').data[2].text.length === 0")


def test_several_results(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    whole = sample_gates(3, 4, 5)
    results = [
        sample_results("plain", **FEW),
        gated("folded", seed=1),
        gated("whole", whole, seed=2),
        sample_results("plain", task="rte", **FEW),
    ]
    page = open_page(write_report(results, tmp_path / "report.html"))
    assert page.locator("#gates-of option").all_inner_texts() == ["folded", "whole"]
    page.locator("#gates-of").select_option("1")
    assert drawn(page, "heads", "z")[0] == [pytest.approx([100 * rate for rate in row]) for row in whole.head_rates]
    assert not page.locator("#gates-deleted").is_visible()
    ratios = [text.replace("\u00a0", " ") for text in page.locator("#summary td:last-child").all_inner_texts()]
    assert ratios == ["–", "61.0 %", "61.0 %"]
    page.locator("#group").select_option("1")
    assert not page.locator("#gates").is_visible()
    assert not page.locator("#flops-word").is_visible()


# Comparisons


def test_comparison(run: Callable[..., Result], tmp_path: Path) -> None:
    for results in (gated("ebert-seed1"), gated("ebert-seed2", sample_gates(), seed=1), sample_results("plain", **FEW)):
        (tmp_path / results.name).mkdir()
        results.write(tmp_path / results.name / "results.json")
    runs, plain = sorted(tmp_path.glob("ebert-*")), tmp_path / "plain"
    ebert, other = compare([*runs, plain], tmp_path / "out", group_seeds=True).groups()["sst-2", "dev"]
    assert ebert.numbers["flops_ratio"] == pytest.approx((0.61 + 3.412 / 5.594) / 2)
    assert ebert.deviations["flops_ratio"] is not None
    assert other.numbers["flops_ratio"] is None
    with (tmp_path / "out" / "comparison.csv").open(newline="") as file:
        assert [row["flops_ratio"] for row in csv.DictReader(file)][1] == ""
    assert "flops_ratio" not in compare([plain]).groups()["sst-2", "dev"][0].numbers

    said = run("compare", *runs, plain, "--out", tmp_path / "out").out
    assert next(line for line in said.splitlines() if "seed1" in line).split()[-1] == "61.0"
    assert "by EBERT's count" in said
    assert "FLOPs" not in run("compare", plain, "--out", tmp_path / "other").out
