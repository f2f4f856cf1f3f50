"""Training in processes of their own: several at once, and one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import offramp
from offramp.training.published import published_recipe, with_settings
from tests.generated import backbone_folder, reviews_file
from tests.training.test_run import backbone_without_dropout, same, weights

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone without dropout (each process draws its own) and a file of reviews."""
    folder = tmp_path_factory.mktemp("processes")
    backbone_without_dropout(backbone_folder(folder / "backbone"), folder)
    reviews_file(folder / "reviews.csv", 150)
    return folder


SCHEDULE = {"epochs": 6, "learning_rate": 0.005, "batch_size": 16}


def command(folder: Path, out: Path, recipe: str, *more: str) -> list[str]:
    """What a user types after `python`."""
    schedule = [text for name, value in SCHEDULE.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return [
        *("-m", "offramp", "train", "--data", str(folder / "reviews.csv"), "--label", "verdict"),
        *("--backbone", str(folder / "no-dropout"), "--recipe", recipe, "--out", str(out), *schedule, *more),
    ]


def in_this_process(folder: Path, out: Path, recipe: str, **settings: Any) -> dict[str, Tensor]:
    """The weights that the same settings give here."""
    task = offramp.task(data=folder / "reviews.csv", label="verdict")
    method = with_settings(published_recipe(recipe, None, "bert"), SCHEDULE, {})
    offramp.train(str(folder / "no-dropout"), task, out, method, quiet=True, **settings)
    return weights(out)


@pytest.mark.parametrize("recipe", ["romebert", pytest.param("elbert", marks=pytest.mark.slow)])
def test_two_processes_train_the_model_of_one(recipe: str, folder: Path, tmp_path: Path) -> None:
    """The same global batches, also where the gradients of two losses are kept apart and edited (romebert).

    135 rows, 16 a step: the last step of an epoch has 7 rows, 4 for one process and 3 for the other.
    """
    run = command(folder, tmp_path / "two", recipe)
    done = subprocess.run([*TORCHRUN, *run], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one, two = in_this_process(folder, tmp_path / "one", recipe, accumulate=2), weights(tmp_path / "two")
    for name, weight in one.items():
        if not name.endswith("key.bias"):  # its gradient is rounding noise, which Adam scales up
            torch.testing.assert_close(weight, two[name], rtol=1e-3, atol=1e-3)


def test_gates_learn_in_two_processes(folder: Path, tmp_path: Path) -> None:
    """Not the model of one process, since gates sample; but the task is learnt, and gates close."""
    run = command(folder, tmp_path / "two", "ebert", "--target-flops", "0.5", "--set", "penalty=20")
    done = subprocess.run([*TORCHRUN, *run], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    trace = offramp.evaluate(tmp_path / "two")
    report = trace.gate_report()
    assert report is not None
    assert 0.3 < report.ratio < 0.9
    assert trace.scores()[-1].scores["accuracy"] > 0.8


def test_killed_and_resumed_is_not_killed(folder: Path, tmp_path: Path) -> None:
    """kill -9 once there is a checkpoint; then the same weights as without, bit for bit."""
    killed = [sys.executable, *command(folder, tmp_path / "killed", "deebert", "--save-steps", "3")]
    victim = subprocess.Popen(killed, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    checkpoints = tmp_path / "killed" / "checkpoints" / "1-fine-tune"
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("checkpoint-*/trainer_state.json")):
        assert victim.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.01)
    victim.kill()
    assert victim.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "training.json").exists()
    whole = in_this_process(folder, tmp_path / "whole", "deebert")
    resumed = in_this_process(folder, tmp_path / "killed", "deebert", resume=True, save_steps=3)
    assert same(whole, resumed)
