"""What is known of a backbone before it is loaded, and what papers set for a benchmark."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

import offramp
from offramp.recipes import Plain, Recipe
from offramp.tasks.benchmarks import find_benchmark
from offramp.training.plan import Plan
from offramp.training.published import backbone_family, benchmark_of
from tests.command_line import Result
from tests.generated import backbone_folder, reviews_file
from tests.tasks.squad_made import entry, squad_file
from tests.tasks.test_benchmarks import write_official

Run = Callable[..., Result]


def test_family_of_a_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    monkeypatch.setattr("offramp.training.published.snapshot_download", lambda name, allow_patterns: str(tmp_path))
    assert backbone_family("somebody/encoder") == "albert"


def test_without_a_network_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is asked once; loading will say that there is no such model."""
    asked: list[str] = []

    def no_network(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("offramp.training.published.snapshot_download", no_network)
    assert backbone_family("somebody/encoder") == "bert"
    assert asked == ["somebody/encoder"]


def test_own_files_are_no_benchmarks_whatever_they_are_called(tmp_path: Path) -> None:
    write_official(find_benchmark("mnli"), tmp_path / "MNLI")
    assert benchmark_of(offramp.task("mnli", data_dir=tmp_path)) == "glue/mnli"
    assert benchmark_of(offramp.task("squad", data=squad_file(tmp_path / "train.json", entry("1", ("basel", 9))))) == (
        "squad"
    )
    for name in ("mnli", "squad"):
        own = offramp.task(data=reviews_file(tmp_path / f"{name}.csv", 40), label="verdict")
        assert (own.name, benchmark_of(own)) == (name, None)


@pytest.mark.parametrize(
    ("recipe", "asked", "looks"),
    [
        ("plain", {}, (10, 50, "best")),
        ("plain", {"eval_steps": 7}, (10, 7, "best")),
        ("plain", {"early_stopping": 3}, (3, None, "best")),
        ("plain", {"early_stopping": 0}, (0, None, "last")),
        ("elasticbert", {}, (0, None, "last")),
        (Plain(), {}, (0, None, "last")),
    ],
)
def test_a_static_elasticbert_stops_early(
    recipe: str | Recipe,
    asked: dict[str, int],
    looks: tuple[int, int | None, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr("offramp.training.run.run", lambda plan, *_: plans.append(plan))
    (tmp_path / "config.json").write_text('{"model_type": "elasticbert"}')
    task = offramp.task(data=reviews_file(tmp_path / "reviews.csv", 40), label="verdict")
    offramp.train(tmp_path, task, tmp_path / "model", recipe, **asked)
    [plan] = plans
    assert (plan.early_stopping, plan.eval_steps, plan.keep) == looks


def test_without_dev_rows_nothing_stops_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A preset is left out, and that is said; what was asked for is refused."""
    plans: list[Plan] = []
    monkeypatch.setattr("offramp.training.run.run", lambda plan, *_: plans.append(plan))
    (tmp_path / "config.json").write_text('{"model_type": "elasticbert"}')
    task = offramp.task(data=reviews_file(tmp_path / "reviews.csv", 40), label="verdict", dev_share=0)
    with caplog.at_level(logging.WARNING, logger="offramp"):
        offramp.train(tmp_path, task, tmp_path / "model", "plain")
    assert (plans[0].early_stopping, plans[0].eval_steps, plans[0].keep) == (0, None, "last")
    assert [record.getMessage() for record in caplog.records] == [
        "reviews has no dev rows: training without ElasticBERT's early stopping"
    ]
    with pytest.raises(offramp.OfframpError, match="reviews has no dev rows to stop early by"):
        offramp.train(tmp_path, task, tmp_path / "model", "plain", early_stopping=3)


@pytest.mark.parametrize(
    ("file", "recipe", "settings", "load"),
    [
        ("mnli.csv", "romebert", {"first": "distillation"}, {}),
        ("squad.csv", "ebert", {"schedule.batch_size": 32}, {"exits": "last"}),
        ("reviews.csv", "ebert+plain", {"name": "ebert"}, {"exits": "last"}),  # only the last exit would learn
    ],
)
def test_the_same_plan_from_python_and_from_the_command_line(
    file: str,
    recipe: str,
    settings: dict[str, Any],
    load: dict[str, Any],
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[Plan] = []
    monkeypatch.setattr("offramp.training.run.run", lambda plan, *_: plans.append(plan))
    backbone, data = backbone_folder(tmp_path / "backbone"), reviews_file(tmp_path / file, 40)
    offramp.train(backbone, offramp.task(data=data, label="verdict"), tmp_path / "model", recipe)
    options = ("--data", data, "--label", "verdict", "--recipe", recipe, "--out", tmp_path / "model", "--quiet")
    done = run("train", "--backbone", backbone, *options)
    assert done.status == 0, done.err
    by_python, by_command = plans
    assert by_python == by_command
    method = {**by_python.recipe, **{f"schedule.{key}": value for key, value in by_python.recipe["schedule"].items()}}
    assert settings.items() <= method.items()
    assert by_python.load == load
