"""`offramp quickstart`, as a user types it, with a small stand-in for the model in the box."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

import offramp
from offramp import shipped
from offramp.calibration.certificate import read_certificate
from offramp.evaluation.results import Results
from offramp.quickstart import folder as folders
from offramp.quickstart import measuring, summary
from offramp.quickstart import run as stages
from offramp.quickstart.parts import parts_of
from offramp.quickstart.reviews import GRADES, make_reviews
from offramp.tasks import own_task
from tests.command_line import Result
from tests.generated import SPECIAL, reviews_file

Run = Callable[..., Result]
QUICK = ("--rows", "240", "--epochs", "4", "--learning-rate", "3e-3", "--quiet")
OWN = ("--data", "reviews.csv", "--label", "verdict")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers that know the words of the reviews, in a box of its own."""
    box = tmp_path_factory.mktemp("box")
    words = sorted({w for one in make_reviews(3000) for w in re.findall(r"\w+|[^\w\s]", one.review.lower())})
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(vocab_size=len(words) + 5, max_position_embeddings=64, initializer_range=0.15, **shape)
    BertModel(config).half().save_pretrained(box / "offramp-mini")
    (box / "offramp-mini" / "vocab.txt").write_text("\n".join([*SPECIAL, *words]), encoding="utf-8")
    BertTokenizer.from_pretrained(box / "offramp-mini").save_pretrained(box / "offramp-mini")
    return box


@pytest.fixture(autouse=True)
def _here(backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without a network, in little time."""

    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setattr("socket.getaddrinfo", no_network)
    monkeypatch.setattr(shipped, "BOX", backbone)
    monkeypatch.setattr(measuring, "SECONDS", 0.0)
    for module in (stages, summary):
        monkeypatch.setattr(module, "MAX_LOSS", 0.2)  # so few rows support no smaller one
    monkeypatch.chdir(tmp_path)


def words_of(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_the_whole_loop_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.setenv("COLUMNS", "80")
    done = run("quickstart", *QUICK)
    assert done.status == 0, done.err
    folder = Path("runs/quickstart")
    noted = json.loads((folder / "quickstart.json").read_text())
    assert noted["finished"] is True
    lines = done.out.splitlines()
    assert lines[0].startswith("offramp-mini, 3 exits, 480 generated reviews")
    results = Results.read(folder / "model/evaluation/test/results.json")
    assert (results.split, results.rows) == ("test", 120)
    assert results.point is not None
    policy = read_certificate(folder / "model").policy
    assert str(policy) == results.point.policy
    table = {words_of(line)[0]: words_of(line)[1:] for line in lines[2:4]}
    assert table["full depth"][:2] == [f"{100 * results.full_depth.scores['accuracy']:.1f} %", "3.0"]
    assert table["calibrated"][:2] == [
        f"{100 * results.point.scores['accuracy']:.1f} %",
        f"{results.point.mean_layers:.1f}",
    ]
    assert table["calibrated"][3] == f"{noted['speed']['speed_up']:.1f} × faster, measured here"
    assert "calibrated to lose at most 20 points against full depth, with 95 % confidence" in lines
    exits = next(line for line in lines if line.startswith("each exit")).split()[2:]
    assert exits == [f"{100 * one.scores['accuracy']:.1f}" for one in results.exits]
    assert list(noted["layers_by_grade"]) == list(GRADES)
    assert ["grade", *GRADES] in [line.split() for line in lines]
    mean = sum(noted["layers_by_grade"].values()) / len(GRADES)
    assert mean == pytest.approx(results.point.mean_layers, abs=0.1)
    assert f"report  {folder / 'report.html'}" in lines
    assert (folder / "report.html").stat().st_size > 1_000_000
    assert max(len(line) for line in lines if not line.startswith(("report", "try", "next"))) <= 80
    # What is scored was neither trained nor calibrated on, and predict agrees with what was printed.
    rows = {name: list(csv.DictReader((folder / "data" / f"{name}.csv").open())) for name in ("train", "dev", "test")}
    assert len({row["review"] for part in rows.values() for row in part}) == 480
    answers = offramp.predict(folder / "model", [row["review"] for row in rows["test"]])
    right = [answer.label == row["verdict"] for answer, row in zip(answers, rows["test"], strict=True)]
    assert sum(right) / len(right) == pytest.approx(results.point.scores["accuracy"])
    tried = re.search(r"try +offramp (predict .*)", done.out)
    assert tried is not None
    assert run(*tried[1].replace('"', "").split(" ", 2)).status == 0
    # Again: the new one takes the place of the old, and what others put there stays.
    (folder / "notes.txt").write_text("mine")
    again = run("quickstart", "--rows", "60", "--epochs", "1", "--quiet")
    assert again.status == 0, again.err
    assert "120 generated reviews" in again.out
    assert len((folder / "data" / "train.csv").read_text().splitlines()) == 61
    assert (folder / "notes.txt").read_text() == "mine"


def test_own_data(run: Run) -> None:
    reviews_file(Path("reviews.csv"), 300)
    done = run("quickstart", *OWN, "--dev-share", "0.6", *QUICK, "--out", "mine")
    assert done.status == 0, done.err
    assert done.out.startswith("offramp-mini, 3 exits, 300 rows of reviews\n")
    assert json.loads(Path("mine/quickstart.json").read_text())["rows"] == {"train": 120, "dev": 90, "test": 90}
    assert not Path("mine/data").exists()
    assert "grade" not in done.out
    assert Results.read(Path("mine/model/evaluation/test/results.json")).rows == 90


def test_rows_that_support_no_promise(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_LOSS", 0.001)
    done = run("quickstart", "--rows", "40", "--epochs", "1", "--quiet")
    assert done.status == 0, done.err
    assert re.search(r"not calibrated: 20 rows cannot support this promise", done.out)
    assert not re.search("^calibrated ", done.out, re.MULTILINE)
    assert not Path("runs/quickstart/model/policy.json").exists()
    assert json.loads(Path("runs/quickstart/quickstart.json").read_text())["calibrated"] is None


def test_parts_of_own_data_do_not_meet(tmp_path: Path) -> None:
    task = own_task(reviews_file(tmp_path / "r.csv", 200), label="verdict", dev_share=0.5)
    parts = parts_of(task, 1000, seed=3)
    dev, test = parts.task.split("dev"), parts.task.split("test")
    assert sorted([*dev.texts, *test.texts]) == sorted(task.split("dev").texts)
    assert abs(sum(dev.labels) - sum(test.labels)) <= 1
    few = parts_of(task, 30, seed=3)
    assert few.rows == {"train": 30, "dev": 30, "test": 30}
    own = own_task(
        reviews_file(tmp_path / "s.csv", 80), test=reviews_file(tmp_path / "t.csv", 20, seed=5), label="verdict"
    )
    assert parts_of(own, 1000, seed=3).task.split("test").texts == own.split("test").texts


def refused(done: Result, *words: str) -> None:
    assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1), done.err
    for word in words:
        assert word in done.err


def never(*args: object, **kwargs: object) -> None:
    raise AssertionError("the long work was begun")


def test_a_folder_of_others_is_left_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "carry_out", never)
    Path("work").mkdir()
    Path("work/thesis.txt").write_text("mine")
    refused(run("quickstart", "--out", "work"), "work was not made by offramp quickstart", "--out")
    refused(run("quickstart", "--out", "work/thesis.txt"), "is a file")
    assert [path.name for path in Path("work").iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_written(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "carry_out", never)
    Path("file").touch()
    refused(run("quickstart", "--out", "file/below"), "cannot be written", "--out")

    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    refused(run("quickstart", "--out", "elsewhere"), "cannot be written (Permission denied)", "--out")


def test_a_full_disk_is_seen_before_the_work(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "carry_out", never)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=2_000_000))
    refused(run("quickstart"), "2 MB are free", "make room")
    assert not Path("runs").exists()


@pytest.mark.parametrize("stage", ["train", "evaluate", "write_report"])
def test_a_disk_that_fills_up(run: Run, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    pytest.importorskip("plotly")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stages, stage, full)
    refused(run("quickstart", "--rows", "30", "--epochs", "1", "--quiet"), "No space left on device", "runs/quickstart")
    assert not Path("runs/quickstart").exists()


def test_safetensors_say_it_in_their_own_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise folders.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(stages, "train", full)
    refused(run("quickstart", "--rows", "30", "--quiet"), "No space left on device")
    assert not Path("runs/quickstart").exists()


@pytest.mark.parametrize("stage", ["training", "measure"])
def test_ctrl_c_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    if stage == "training":
        monkeypatch.setattr("offramp.training.progress.ShowProgress.on_log", stop)
    else:
        monkeypatch.setattr(stages, stage, stop)
    done = run("quickstart", "--rows", "64", "--epochs", "20", "--quiet")
    assert (done.status, done.out) == (130, "")
    assert done.err.splitlines() == ["stopped: nothing was kept; offramp quickstart starts again"]
    assert not Path("runs/quickstart").exists()


def test_what_it_is_not_for(run: Run) -> None:
    Path("numbers.csv").write_text("text,score\n" + "\n".join(f"a film {n},{n / 7:.2f}" for n in range(50)))
    refused_words = run("quickstart", "--data", "numbers.csv", "--label", "score")
    assert (refused_words.status, "quickstart is for labels" in refused_words.err) == (2, True)
    assert not Path("runs/quickstart").exists()
    refused(run("quickstart", "--backbone", "offramp-mni"), "offramp comes with offramp-mini")
