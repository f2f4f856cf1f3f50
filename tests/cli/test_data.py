"""`offramp data`, as a user types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_line import Result
from tests.tasks import hub_stand_in

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_stand_in.load_dataset)


def test_data(run: Callable[..., Result], tmp_path: Path) -> None:
    done = run("data", "glue", "--out", tmp_path, "--tasks", "SST-2, rte")
    assert done.status == 0, done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["RTE", "SST-2"]
    lines = done.out.splitlines()
    assert len(lines) == 8
    assert lines[0] == "glue/sst-2: fetching nyu-mll/glue sst2"
    assert lines[1] == f"{tmp_path}/SST-2/train.tsv: 3 rows; tabs and line ends in 1 texts became spaces"
    again = run("data", "glue", "--out", tmp_path, "--tasks", "rte")
    assert again.out.count("is there and kept") == 3


def test_what_differs_is_said(run: Callable[..., Result], tmp_path: Path) -> None:
    done = run("data", "elue", "--out", tmp_path, "--tasks", "sst-2")
    assert done.out.startswith(
        "elue/sst-2: fetching nyu-mll/glue sst2 (GLUE's SST-2: ELUE's own selection of it is not on the hub)\n"
    )


def test_squad(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run("data", "squad", "--out", tmp_path).status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("dev-v1.1.json", "dev-v2.0.json", "train-v1.1.json", "train-v2.0.json")
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("gluee",), "error: suite 'gluee'"), (("glue", "--tasks", "imdb"), "error: glue has no task 'imdb'")],
)
def test_bad_input(run: Callable[..., Result], arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    refused = run("data", *arguments, "--out", tmp_path)
    assert refused.status == 2
    assert refused.err.startswith(message)
    assert refused.err.count("\n") == 1


def test_no_hub(run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*arguments: object) -> None:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    refused = run("data", "glue", "--out", tmp_path)
    assert refused.status == 2
    assert (
        "hub data set nyu-mll/glue (cola) could not be loaded (ConnectionError: Couldn't reach the hub)" in refused.err
    )


def test_help(run: Callable[..., Result]) -> None:
    shown = run("data", "--help")
    assert shown.status == 0
    assert "offramp data glue --out data/glue" in shown.out
