"""The report as a file, and as a reader sees it in a browser."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly")

from offramp.errors import OfframpError
from offramp.evaluation.key_figures import all_points, best_at, cheapest_within, front
from offramp.evaluation.report import write_report
from offramp.evaluation.results import Results
from tests.evaluation.sample_results import sample_gates, sample_results

HOSTILE = """</script><img src=x onerror="document.title='owned'"> "quoted" 'single' & <b>bold</b> {{data}} \u2028"""
FEW = {"points": 8, "rows": 200}


def embedded(path: Path) -> Any:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.S
    )
    assert found
    return json.loads(found[1])


def test_names_cannot_break_out(tmp_path: Path) -> None:
    results = dataclasses.replace(sample_results(HOSTILE, task=HOSTILE, **FEW), settings={HOSTILE: HOSTILE})
    plain = write_report([sample_results(**FEW)], tmp_path / "plain.html")
    hostile = write_report([results], tmp_path / "hostile.html")
    data = embedded(hostile)["groups"][0]
    assert data["task"] == data["results"][0]["name"] == HOSTILE
    for tag in ("</script", "<img", "<b>"):
        assert hostile.read_text().count(tag) == plain.read_text().count(tag)


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    results = sample_results(policies=("entropy",), **FEW)
    first, *others = results.exits
    broken = dataclasses.replace(first, scores={"accuracy": math.nan, "f1": math.inf - math.inf})
    path = write_report([dataclasses.replace(results, exits=[broken, *others])], tmp_path / "report.html")
    assert embedded(path)["groups"][0]["results"][0]["exits"][0]["values"]["accuracy"] is None


def test_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_report([sample_results(**FEW)], tmp_path / "report.html")
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OfframpError, match="disk full"):
        write_report([sample_results("other", **FEW)], path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_without_plotly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(OfframpError, match=r"pip install 'offramp\[report\]'"):
        write_report([sample_results(**FEW)], tmp_path / "report.html")


# In a browser

ONE_EXIT = sample_results(depth=1, rows=1, points=3)
PAGES: dict[str, list[Results]] = {
    "one": [sample_results(points=40)],
    "asked, no labels": [sample_results(asked=True, labelled=False, **FEW)],
    "one exit, one row": [ONE_EXIT],
    "gates": [sample_results(gates=sample_gates(deleted=True), **FEW)],
    "no sweep": [dataclasses.replace(ONE_EXIT, sweeps=[])],
    "several": [
        sample_results("deebert", skill=0.7, **FEW),
        sample_results("a-name-without-any-space-" * 5, seed=1, **FEW),
        sample_results(HOSTILE, seed=2, **FEW),
        sample_results("deebert", task="rte", **FEW),
    ],
}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens(name: str, tmp_path: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(write_report(PAGES[name], tmp_path / "report.html"), scheme="dark")
    assert page.locator("h1").inner_text() == "sst-2 (dev)"
    assert page.locator(".chart .main-svg").count() >= 3
    assert page.locator("#gates").is_visible() == any(one.gates for one in PAGES[name])
    assert "owned" not in page.title()
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        ink = page.locator("#curve-chart .xtitle").evaluate("title => getComputedStyle(title).fill")
        assert (brightness(paper) < brightness(ink)) == (scheme == "dark")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        fits = "chart => chart.querySelector('.main-svg').clientWidth <= chart.clientWidth"
        page.wait_for_function(fits, arg=page.locator("#curve-chart").element_handle())


def brightness(colour: str) -> int:
    """Of `rgb(1, 2, 3)`."""
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


@pytest.fixture
def report(tmp_path: Path, open_page: Callable[..., Any]) -> tuple[Any, Results]:
    results = sample_results(policies=("entropy", "patience"), **FEW)
    return open_page(write_report([results], tmp_path / "report.html")), results


def test_hover(report: tuple[Any, Results]) -> None:
    page, results = report
    point = results.sweeps[1].points[4]
    page.locator("#curve-chart .scatterlayer .trace").nth(2).locator(".point").nth(4).hover(force=True)
    text = page.locator("#curve-chart .hoverlayer .hovertext").text_content().replace("\u00a0", " ")
    for part in (
        point.policy,
        f"accuracy {100 * point.scores['accuracy']:.1f} %",
        f"F1 {100 * point.scores['f1']:.1f} %",
        f"agreement with full depth {100 * point.agreement:.1f} %",
        f"cost {100 * point.cost:.1f} % ({point.mean_layers:.2f} of 12 layers)",
        f"speed-up in layers {point.speed_up:.2f}×",
        f"{point.mflops:.0f} MFLOPs",
    ):
        assert part in text


def test_key_figures(report: tuple[Any, Results]) -> None:
    page, results = report
    cards = page.locator("#figures .card").all_inner_texts()
    within, half = cheapest_within(results, "accuracy"), best_at(results, "accuracy", 2)
    assert f"{100 * results.full_depth.scores['accuracy']:.1f}\u00a0%" in cards[0]
    assert f"{100 * within.cost:.0f}\u00a0% of layers" in cards[1]
    assert f"{100 * half.score:.1f}\u00a0%" in cards[2]
    assert within.policy in cards[1]
    assert half.policy in cards[2]
    page.locator("#metric").select_option("agreement")
    assert "100.0" in page.locator("#figures .card .number").first.inner_text()


def test_slider_and_click_choose_a_point(report: tuple[Any, Results]) -> None:
    page, results = report

    def shown() -> tuple[str, list[int]]:
        bars = page.locator("#histogram-chart").evaluate("chart => chart.data[0].y.map(y => Math.round(2 * y))")
        return page.locator("#selected strong").inner_text(), bars

    page.locator("#curve").select_option(label="patience")
    first, second = results.sweeps[1].points[:2]
    assert shown() == (first.policy, list(first.exits.values()))
    page.locator("#slider").focus()
    page.keyboard.press("ArrowRight")
    assert shown() == (second.policy, list(second.exits.values()))
    assert second.policy in page.locator("#slider").get_attribute("aria-valuetext")
    page.locator("#curve-chart .scatterlayer .trace").nth(1).locator(".point").nth(5).hover(force=True)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_function("document.querySelector('#curve').selectedOptions[0].text === 'entropy'")
    assert shown()[0] == results.sweeps[0].points[5].policy


def test_table(report: tuple[Any, Results]) -> None:
    page, results = report

    def column(number: int) -> list[str]:
        return page.locator(f"#points tbody tr td:nth-child({number})").all_inner_texts()

    best = front(all_points(results), "accuracy")
    assert column(1)[: len(best)] == [point.policy for point in best]
    by_score = page.get_by_role("button", name="accuracy", exact=True)
    by_score.click()
    by_score.press("Enter")
    assert page.locator("#points th").nth(1).get_attribute("aria-sort") == "descending"
    scores = [float(text.split()[0]) for text in column(2)]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 16
    page.locator("#filter").select_option(label="policy patience")
    assert sorted(column(1)) == sorted(point.policy for point in results.sweeps[1].points)
    page.locator("#points tbody button").first.click()
    assert page.locator("#selected strong").inner_text() == column(1)[0]
    assert page.locator("#points tr.on button").all_inner_texts() == [column(1)[0]]


def test_cost_in_flops_and_hiding(report: tuple[Any, Results]) -> None:
    page, results = report
    chart = page.locator("#curve-chart")
    page.locator("#cost").select_option("mflops")
    flops = [point.mflops for point in results.sweeps[0].points]
    assert chart.evaluate("chart => chart.data[1].x") == pytest.approx(flops)
    before = chart.locator(".scatterlayer .trace").count()
    button = page.get_by_role("button", name="entropy", exact=True)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert chart.locator(".scatterlayer .trace").count() == before - 1


def test_several(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(write_report(PAGES["several"], tmp_path / "report.html"))
    assert page.locator("#legend button").all_inner_texts()[0] == "deebert"
    assert page.locator("#legend button").nth(2).inner_text().startswith("</script><img")
    assert page.locator("#summary tbody tr").count() == 3
    first = PAGES["several"][0]
    assert f"{100 * first.full_depth.scores['accuracy']:.1f}" in page.locator("#summary tbody tr").first.inner_text()
    page.locator("#policy").select_option("window")
    window = next(sweep for sweep in first.sweeps if sweep.name == "window")
    drawn = page.locator("#curve-chart").evaluate("chart => chart.data[0].y")
    assert drawn == pytest.approx([100 * point.scores["accuracy"] for point in window.points])
    page.locator("#policy").select_option("")
    page.locator("#filter").select_option(label="policy patience")
    page.locator("#points tbody tr").last.locator("button").press("Enter")
    assert page.locator("#points tr.on").count() == 1
    assert page.locator("#points tr.on button").evaluate("button => button === document.activeElement")
    page.locator("#group").select_option("1")
    assert page.locator("h1").inner_text() == "rte (dev)"
    assert page.locator("#figures .card").count() == 3
