"""A run that was stopped and resumed ends as one that was not; and it is that run, on its own rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp.errors import Interrupted
from offramp.tasks import Task
from tests.generated import reviews_file
from tests.training.test_run import StopAt, backbone, quick, same, task, weights

__all__ = ["backbone", "task"]  # fixtures


@pytest.mark.parametrize(
    ("recipe", "phase", "step"),
    [
        ("deebert", "fine-tune", 5),
        ("deebert", "exits", 3),
        ("romebert", "self-distillation", 14),
        ("elbert", "joint", 12),
        ("ebert with distillation", "gated-fine-tune", 12),
    ],
)
def test_stopped_and_resumed_is_not_stopped(
    recipe: str, phase: str, step: int, backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an epoch, in the first phase and in the second: the final weights are the same bits."""
    offramp.train(backbone, task, tmp_path / "whole", quick(recipe), quiet=True)
    with monkeypatch.context() as patch:
        StopAt(patch, phase, step)
        with pytest.raises(Interrupted, match=rf"stopped at step {step} of 28; go on with: offramp train --resume"):
            offramp.train(backbone, task, tmp_path / "model", quick(recipe), quiet=True)
    with pytest.raises(offramp.OfframpError, match=r"other settings: seed was 42, and now is 1"):
        offramp.train(backbone, task, tmp_path / "model", quick(recipe), quiet=True, resume=True, seed=1)
    with pytest.raises(offramp.OfframpError, match=r"--resume to go on with the run in it"):
        offramp.train(backbone, task, tmp_path / "model", quick(recipe), quiet=True)
    offramp.train(backbone, task, tmp_path / "model", quick(recipe), quiet=True, resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "model"))
    assert not (tmp_path / "model" / "checkpoints").exists()


@pytest.fixture
def begun(backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], Any]]:
    """The training rows of a run that was stopped, in `model` beside them, and how it goes on."""
    rows, dev = reviews_file(tmp_path / "reviews.csv", 60), reviews_file(tmp_path / "dev.csv", 20)
    task, recipe = offramp.task(data=rows, dev=dev, label="verdict"), quick("plain", epochs=1)
    with monkeypatch.context() as patch:
        StopAt(patch, "fine-tune", 2)
        with pytest.raises(Interrupted):
            offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True)
    return rows, lambda: offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True, resume=True)


CHANGES: dict[str, Callable[[str], str]] = {
    "a label": lambda text: text.replace(",good", ",?", 1).replace(",bad", ",good", 1).replace(",?", ",bad", 1),
    "one more": lambda text: text + "a great film,good\n",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_goes_on_with_the_rows_it_was_begun_with(change: str, begun: tuple[Path, Callable[[], Any]]) -> None:
    rows, go_on = begun
    before = rows.read_text()
    rows.write_text(CHANGES[change](before))
    with pytest.raises(offramp.OfframpError, match="begun with other training rows than reviews has now: bring them"):
        go_on()
    rows.write_text(before)
    go_on()
    record = json.loads((rows.parent / "model" / "training.json").read_text())
    assert record["trained_on"] == offramp.task(data=rows, label="verdict", dev_share=0).split("train").digest()


def test_a_run_whose_plan_names_no_rows_goes_on(begun: tuple[Path, Callable[[], Any]]) -> None:
    """As earlier versions wrote it."""
    rows, go_on = begun
    plan = rows.parent / "model" / "checkpoints" / "plan.json"
    named = json.loads(plan.read_text())
    assert named.pop("trained_on")
    plan.write_text(json.dumps(named))
    rows.write_text(CHANGES["a label"](rows.read_text()))
    go_on()


def test_a_run_whose_plan_lacks_newer_settings_goes_on(begun: tuple[Path, Callable[[], Any]]) -> None:
    """As earlier versions wrote it: the new settings were not there, and are what they are unless told."""
    rows, go_on = begun
    plan = rows.parent / "model" / "checkpoints" / "plan.json"
    written = json.loads(plan.read_text())
    for name in ("stride", "early_stopping"):
        del written[name]
    for name in ("max_steps", "warmup_steps", "adam_epsilon"):
        del written["recipe"]["schedule"][name]
    plan.write_text(json.dumps(written))
    go_on()
    record = json.loads((rows.parent / "model" / "training.json").read_text())
    assert record["recipe"]["schedule"]["adam_epsilon"] == 1e-8


@pytest.mark.parametrize("eval_steps", [3, None])
def test_a_run_that_stops_early_does_so_when_it_is_resumed(
    eval_steps: int | None, backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its looks without a better score, and where the last of them was."""
    settings: dict[str, Any] = {"early_stopping": 2, "eval_steps": eval_steps, "quiet": True}
    recipe = quick("plain", epochs=8, learning_rate=1e-6)
    offramp.train(backbone, task, tmp_path / "whole", recipe, **settings)
    [phase] = json.loads((tmp_path / "whole" / "training.json").read_text())["phases"]
    assert phase["steps"] < 8 * 14
    for number, step in enumerate((phase["steps"] - 2, phase["steps"])):
        with monkeypatch.context() as patch:
            StopAt(patch, "fine-tune", step)
            with pytest.raises(Interrupted, match=f"stopped at step {step}"):
                offramp.train(backbone, task, tmp_path / "model", recipe, **settings, resume=number > 0)
    offramp.train(backbone, task, tmp_path / "model", recipe, **settings, resume=True)
    [resumed] = json.loads((tmp_path / "model" / "training.json").read_text())["phases"]
    assert resumed["history"] == phase["history"]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "model"))


def test_the_best_weights_of_a_run_stopped_often_are_those_of_one_that_was_not(
    backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop adds no look at dev: what is looked at, and so what is kept, is the same."""
    recipe = quick("deebert", epochs=3)
    stops = [("fine-tune", 20), ("fine-tune", 28), ("fine-tune", 33), ("exits", 5)]  # 28: the end of an epoch
    offramp.train(backbone, task, tmp_path / "whole", recipe, quiet=True, keep="best")
    for number, (phase, step) in enumerate(stops):
        with monkeypatch.context() as patch:
            StopAt(patch, phase, step)
            with pytest.raises(Interrupted, match=f"stopped at step {step}"):
                offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True, keep="best", resume=number > 0)
    offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True, keep="best", resume=True)
    records = [json.loads((tmp_path / name / "training.json").read_text()) for name in ("whole", "model")]
    looks = [[phase["history"] for phase in record["phases"]] for record in records]
    assert looks[0] == looks[1]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "model"))
