"""The plots show the numbers they are given."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from offramp.errors import OfframpError
from offramp.evaluation.key_figures import all_points, cheapest_within, front, value
from offramp.evaluation.plots import exits_figure, histogram_figure, score_cost_figure, sweep_figure, write_plots
from offramp.evaluation.results import Results
from tests.evaluation.sample_results import sample_results

LONG = "romebert with gradient regularisation and a learning rate of 3e-5 in runs/experiments/sst2-romebert-gr-seed1"
FEW = {"points": 6, "rows": 60}


def drawn(figure: Any, axes: int = 0) -> list[tuple[list[float], list[float]]]:
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[axes].lines]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


SAMPLES = {
    "labelled": sample_results(**FEW),
    "unlabelled": sample_results(labelled=False, asked=True, **FEW),
    "one exit, one row": sample_results(depth=1, rows=1, points=2),
    "no sweep": dataclasses.replace(sample_results(**FEW), sweeps=[]),
    "24 layers": sample_results(depth=24, **FEW),
}


@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
@pytest.mark.parametrize("name", SAMPLES)
def test_one_result(name: str, tmp_path: Path) -> None:
    written = write_plots(SAMPLES[name], tmp_path / "new")
    assert [path.name for path in written] == ["score_cost.png", "exits.png", "histogram.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_a_curve_for_each_policy_and_the_front() -> None:
    results = sample_results(asked=True, **FEW)
    lines = drawn(figure := score_cost_figure([results]))
    for points in [front(all_points(results), "accuracy"), *(sweep.points for sweep in results.sweeps)]:
        assert ([point.cost for point in points], [point.scores["accuracy"] for point in points]) in lines
    assert ([results.point.cost], [results.point.score]) in lines
    assert legend(figure) == ["Pareto front", "entropy", "confidence", "patience", "window", "ruled_out"]
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert f"full depth {100 * results.full_depth.scores['accuracy']:.1f} %" in texts
    assert any(text.startswith("entropy(0.1) | window(8)") for text in texts)


def test_several_results() -> None:
    several = [sample_results(name, seed=seed, **FEW) for seed, name in enumerate(["_a $x$", "b", LONG])]
    figure = score_cost_figure(several)
    for results, line in zip(several, drawn(figure), strict=True):
        best = front(all_points(results), "accuracy")
        assert line == ([point.cost for point in best], [point.score for point in best])
    names = legend(figure)
    assert names[:2] == ["_a $x$", "b"]
    assert len(names) == 3
    assert (names[2][:13], names[2][-5:]) == ("romebert with", "seed1")
    by_exit = drawn(exits_figure(several))
    assert by_exit[2] == ([e.layer for e in several[2].exits], [e.scores["accuracy"] for e in several[2].exits])


def test_runs_of_one_name_and_their_mean() -> None:
    """The mean of the best scores within a budget, budget by budget; and of each exit's scores."""
    a, b, other = (sample_results(name, seed=seed, **FEW) for seed, name in enumerate(["rome", "rome", "plain"]))
    figure = score_cost_figure([a, b, other])
    thin_a, thin_b, (budgets, mean), alone = drawn(figure)
    assert legend(figure) == ["rome", "plain"]
    assert len({line.get_color() for line in figure.axes[0].lines[:3]}) == 1
    assert thin_a == (
        [p.cost for p in front(all_points(a), "accuracy")],
        [p.score for p in front(all_points(a), "accuracy")],
    )
    for budget, score in list(zip(budgets, mean, strict=True))[::20]:
        best = [max(p.score for p in front(all_points(run), "accuracy") if p.cost <= budget) for run in (a, b)]
        assert score == pytest.approx(sum(best) / 2)
    assert len(thin_b[0]) > 1
    assert len(alone[0]) > 1
    layers, scores = drawn(exits_figure([a, b, other]))[0]
    pairs = zip(a.exits, b.exits, strict=True)
    assert scores == pytest.approx([(x.scores["accuracy"] + y.scores["accuracy"]) / 2 for x, y in pairs])
    assert layers == [exit.layer for exit in a.exits]


def test_twenty_results_look_different() -> None:
    several = [sample_results(f"run {number}", points=2, rows=5) for number in range(20)]
    looks = {(line.get_color(), str(line.get_linestyle())) for line in score_cost_figure(several).axes[0].lines}
    assert len(looks) == 20


@pytest.mark.parametrize("asked", [False, True])
def test_histogram(asked: bool) -> None:
    results = sample_results(asked=asked, rows=60, points=20)
    figure = histogram_figure(results)
    point = results.point or cheapest_within(results, "accuracy")
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert heights == pytest.approx([count / 60 for count in point.exits.values()])
    assert len(figure.axes) == (1 if asked else 2)
    assert figure.axes[0].get_title("left").startswith(point.policy)


def test_a_sweep_in_a_notebook() -> None:
    results: Results = SAMPLES["unlabelled"]
    sweep = results.sweeps[0]
    figure = sweep_figure(sweep, "agreement", full_depth=1.0)
    assert drawn(figure)[0] == ([p.cost for p in sweep.points], [value(p, "agreement") for p in sweep.points])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_pyplot_is_left_alone() -> None:
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    score_cost_figure([SAMPLES["labelled"]])
    assert pyplot.get_fignums() == before


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(OfframpError, match=r"pip install 'offramp\[report\]'"):
        write_plots(SAMPLES["labelled"], tmp_path)
