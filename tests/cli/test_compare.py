"""`offramp compare`, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Result
from tests.evaluation.sample_results import sample_results


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    made = []
    for seed, name in enumerate(["deebert [bold]", "romebert"]):
        place = tmp_path / name.split()[0] / "evaluation" / "dev"
        place.mkdir(parents=True)
        sample_results(name, seed=seed, points=8, rows=60).write(place / "results.json")
        made.append(tmp_path / name.split()[0])
    return made


def test_compare(run: Callable[..., Result], folders: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    done = run("compare", *folders, "--out", tmp_path / "out")
    assert done.status == 0, done.err
    assert "sst-2 (dev), 60 rows, accuracy" in done.out
    score = sample_results("romebert", seed=1, points=8, rows=60).full_depth.scores["accuracy"]
    row = next(line for line in done.out.splitlines() if "romebert" in line)
    assert f"{100 * score:.1f}" in row
    assert "deebert [bold]" in done.out
    assert f"report  {tmp_path / 'out' / 'report.html'}" in done.out
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_column_that_nobody_has_is_left_out(
    run: Callable[..., Result], folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.evaluation.comparison.drawing_is_possible", lambda: False)
    assert "ELUE" in run("compare", *folders, "--out", tmp_path / "out").out
    for number, folder in enumerate(folders):
        results = folder / "evaluation" / "dev" / "results.json"
        about = json.loads(results.read_text())
        about["sweeps"] = [sweep | {"elue": None} for sweep in about["sweeps"]]
        results.write_text(json.dumps(about))
        table = run("compare", *folders, "--out", tmp_path / "out").out
        assert (" ELUE" in table) == (number == 0)
        assert ("ELUE: no reference curve for sst-2" in table) == (number == 1)
    assert "–" not in table


def test_seeds(run: Callable[..., Result], folders: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    done = run("compare", *folders, "--names", "x-seed1,x-seed2", "--group-seeds", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    assert "x (2 runs)" in done.out
    assert " ± " in done.out


def test_bad_input(run: Callable[..., Result], folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for arguments, message in {
        (tmp_path / "nowhere",): "does not exist",
        (*folders, "--names", "a"): "1 names for 2 results",
        (folders[0], "--out", tmp_path / "file" / "below"): "cannot be written",
    }.items():
        done = run("compare", *arguments)
        assert done.status == 2
        assert done.err.startswith("error: ")
        assert message in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_help_shows_examples(run: Callable[..., Result]) -> None:
    done = run("compare", "--help")
    assert done.status == 0
    assert "offramp compare runs/sst2-deebert runs/sst2-romebert" in done.out
