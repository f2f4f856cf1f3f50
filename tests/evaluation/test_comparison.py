"""Results side by side: which are found, which may be compared, and what the table says."""

from __future__ import annotations

import csv
import dataclasses
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.errors import OfframpError
from offramp.evaluation.comparison import compare
from offramp.evaluation.key_figures import key_figures
from offramp.evaluation.results import Results
from tests.evaluation.sample_results import sample_results

FEW = {"points": 8, "rows": 60}


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Results in a model folder, where `offramp evaluate` puts them."""

    def saved(folder: str, results: Results | None = None, **settings: Any) -> Path:
        results = results or sample_results(**{"name": folder, **FEW, **settings})
        place = tmp_path / folder / "evaluation" / results.split
        place.mkdir(parents=True)
        results.write(place / "results.json")
        return tmp_path / folder

    return saved


def test_every_way_to_name_a_result(saved: Callable[..., Path]) -> None:
    a, b, c, d = (saved(name, seed=seed) for seed, name in enumerate("abcd"))
    sources = [a, b / "evaluation", c / "evaluation" / "dev", d / "evaluation" / "dev" / "results.json"]
    assert [one.name for one in compare(sources).results] == ["a", "b", "c", "d"]


def test_rows_are_the_key_figures(saved: Callable[..., Path]) -> None:
    sources = [saved("deebert", skill=0.7), saved("romebert", seed=1)]
    rows = compare(sources).groups()["sst-2", "dev"]
    assert [(row.name, row.recipe, row.rows, row.runs) for row in rows] == [
        ("deebert", "deebert", 60, 1),
        ("romebert", "romebert", 60, 1),
    ]
    assert rows[1].numbers == key_figures(sample_results("romebert", seed=1, **FEW), "accuracy")
    assert set(rows[1].deviations.values()) == {None}


def test_seeds_are_averaged(saved: Callable[..., Path]) -> None:
    runs = {f"rome-seed{seed}": sample_results(f"rome-seed{seed}", seed=seed, **FEW) for seed in (1, 2, 3)}
    sources = [saved(name, results) for name, results in runs.items()] + [saved("linseed1")]
    rows = compare(sources, group_seeds=True).groups()["sst-2", "dev"]
    scores = [results.full_depth.scores["accuracy"] for results in runs.values()]
    assert [(row.name, row.runs) for row in rows] == [("rome", 3), ("linseed1", 1)]
    assert rows[0].numbers["full_depth"] == pytest.approx(statistics.fmean(scores))
    assert rows[0].deviations["full_depth"] == pytest.approx(statistics.stdev(scores))


@pytest.mark.parametrize("complete", [True, False])
def test_an_average_only_if_every_name_has_every_task(complete: bool, saved: Callable[..., Path]) -> None:
    tasks = [("a", "rte"), ("b", "rte"), ("a", "sst-2"), ("b", "sst-2")][: 4 if complete else 3]
    sources = [saved(f"{task}-{name}", name=name, task=task, seed=i) for i, (name, task) in enumerate(tasks)]
    comparison = compare(sources)
    assert list(comparison.groups()) == [("rte", "dev"), ("sst-2", "dev")]
    averages = comparison.averages()
    assert [row.name for row in averages] == (["a", "b"] if complete else [])
    if complete:
        both = [rows[0].numbers["full_depth"] for rows in comparison.groups().values()]
        assert averages[0].numbers["full_depth"] == pytest.approx(statistics.fmean(both))


def test_one_name_twice(saved: Callable[..., Path]) -> None:
    sources = [saved("x/run", name="same"), saved("y/run", name="same"), saved("z/other", name="same")]
    names = [one.name for one in compare(sources).results]
    assert names[2] == "same (other)"
    assert names[0].startswith("same (run) (")
    assert names[0].endswith("x/run/evaluation/dev/results.json)")
    assert len(set(names)) == 3
    assert [one.name for one in compare(sources, names=["p", "q", "r"]).results] == ["p", "q", "r"]


def test_another_metric(saved: Callable[..., Path]) -> None:
    results = sample_results("a", **FEW)
    source = saved("a", results)
    (row,) = compare([source], metric="f1").groups()["sst-2", "dev"]
    assert row.metric == "f1"
    assert row.numbers["score_2x"] == key_figures(results, "f1")["score_2x"]
    assert row.numbers["elue"] is None
    first = results.exits[0].scores["f1"]
    best = max(point.scores["f1"] for sweep in results.sweeps for point in sweep.points)
    assert first < row.numbers["area"] < best


def test_one_policy(saved: Callable[..., Path]) -> None:
    comparison = compare([saved("a"), saved("b", seed=1)], policy="window")
    assert [[sweep.name for sweep in one.sweeps] for one in comparison.results] == [["window"], ["window"]]


def test_splits(saved: Callable[..., Path]) -> None:
    source = saved("a")
    saved("a", split="test", rows=30)
    assert list(compare([source]).groups()) == [("sst-2", "dev"), ("sst-2", "test")]
    assert list(compare([source], split="test").groups()) == [("sst-2", "test")]


def test_files(saved: Callable[..., Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    sources = [saved("a-seed1", seed=1), saved("a-seed2", seed=2), saved("b", task="rte")]
    out = tmp_path / "new" / "out"
    comparison = compare(sources, out, group_seeds=True)
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    plots = {"sst-2-dev/score_cost.png", "sst-2-dev/exits.png"}
    plots |= {f"rte-dev/{name}.png" for name in ("score_cost", "exits", "histogram")}
    assert files == {"comparison.json", "comparison.csv", "report.html", *plots}
    expected = comparison.groups()["sst-2", "dev"][0]
    data = json.loads((out / "comparison.json").read_text())
    assert data["rows"][0] == dataclasses.asdict(expected)
    with (out / "comparison.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["name"] for row in table] == ["a", "b"]
    assert float(table[0]["full_depth"]) == expected.numbers["full_depth"]
    assert float(table[0]["full_depth_sd"]) == expected.deviations["full_depth"]


def test_what_cannot_be_compared(saved: Callable[..., Path], tmp_path: Path) -> None:
    a, short, bare = saved("a"), saved("short", rows=30), saved("bare", labelled=False)
    by_f1 = dataclasses.replace(sample_results("by-f1", **FEW), metrics=["f1", "accuracy"])
    turned = [dataclasses.replace(exit, scores=dict(reversed(exit.scores.items()))) for exit in by_f1.exits]
    by_f1 = saved("by-f1", dataclasses.replace(by_f1, exits=turned))
    first, second = (
        saved(name, dataclasses.replace(sample_results(name, **FEW), settings={"data": name}))
        for name in ("one", "two")
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.json").write_text('{"format": 1}')

    def says(*sources: Path, **settings: Any) -> str:
        with pytest.raises(OfframpError) as refused:
            compare(sources, **settings)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert "a and short cannot be compared on sst-2 dev: 60 rows and 30" in says(a, short)
    assert "scored by accuracy and by f1; say --metric accuracy" in says(a, by_f1)
    assert "one and two cannot be compared on sst-2 dev: the rows are not the same" in says(first, second)
    assert "scored by accuracy and by agreement" in says(a, bare)
    assert f"run `offramp evaluate {tmp_path / 'empty'}` first" in says(a, tmp_path / "empty")
    assert "does not exist" in says(tmp_path / "nowhere")
    assert "is no results file" in says(tmp_path / "other.json")
    assert "has no results for the split test, only for dev" in says(a, split="test")
    assert "was not scored by pearson: its metrics are accuracy, f1" in says(a, metric="pearson")
    assert "has no sweep of the policy fixed, only of entropy" in says(a, policy="fixed")
    assert "1 names for 2 results" in says(a, short, names=["x"])
    assert "is named twice" in says(a, a / "evaluation")
