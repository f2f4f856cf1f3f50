"""`offramp check`, as a user types it."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

import offramp
from offramp.calibration.checking import check
from offramp.cli.app import app
from offramp.evaluation import SpanTrace
from offramp.evaluation.trace import Trace
from offramp.tasks import own_task, squad_task
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.generated import reviews, reviews_file
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_gated_model, tiny_model

Run = Callable[..., Result]
COLUMNS = ("--text", "review", "--label", "verdict")
POLICY = "entropy(0.7)"


def reviews_task(path: Path, **how: Any) -> Any:
    return own_task(test=path, text="review", label="verdict", labels=("bad", "good"), **how)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that was calibrated, not to differ from full depth in more than nine answers of ten."""
    folder = model_folder(tmp_path / "model")
    rows = reviews_task(reviews_file(tmp_path / "calibrated.csv", rows=80))
    offramp.calibrate(folder, rows, split="test", consistency=True, max_loss=0.9, policy=POLICY)
    return folder


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return reviews_file(tmp_path / "new.csv", rows=70, seed=9)


def promise(folder: Path, **changes: Any) -> None:
    """Another promise in the certificate."""
    path = folder / "policy.json"
    found = json.loads(path.read_text())
    found["certificate"]["promise"] |= changes
    path.write_text(json.dumps(found))


def test_a_promise_that_holds(run: Run, folder: Path, new: Path) -> None:
    done = run("check", folder, new, *COLUMNS)
    assert done.status == 0, done.err
    for part in (
        "model: at most 90 % of the answers differ",
        "calibrated",
        "moved: layers",
        "holds",
        "Keep the policy.",
    ):
        assert part in done.out
    assert "warning" not in done.err
    assert max(map(len, done.out.splitlines()[1:])) <= 80
    again = run("check", folder, new, *COLUMNS)
    assert again.out == done.out
    assert "stored trace" in again.err


def test_a_broken_promise_has_exit_status_1_and_the_command_that_mends_it(run: Run, folder: Path, new: Path) -> None:
    promise(folder, limit=0.001)
    done = run("check", folder, new, *COLUMNS)
    assert done.status == 1
    assert "broken" in done.out
    advised = next(line for line in done.out.splitlines() if "offramp calibrate" in line).split(": ", 1)[1]
    words = shlex.split(advised)[2:]
    assert words[:3] == [str(folder), "--data", str(new)]
    command = typer.main.get_command(app).commands["calibrate"]  # type: ignore[attr-defined]
    asked = command.make_context("calibrate", words).params
    assert (asked["max_loss"], asked["consistency"], asked["text"]) == (0.001, True, "review")


@pytest.mark.parametrize(
    ("asked", "runs", "otherwise", "again"),
    [
        ((), ("bf16", 16), None, "--precision bf16 --max-length 16"),
        (
            ("--precision", "fp32"),
            ("fp32", 16),
            "its promise was made in bf16, and nothing is promised in fp32",
            "--max-length 16",
        ),
        (
            ("--max-length", "24"),
            ("bf16", 24),
            "its promise was made at 16 tokens, and nothing is promised at 24 tokens",
            "--precision bf16 --max-length 24",
        ),
    ],
)
def test_rows_are_run_as_in_the_calibration(
    run: Run,
    folder: Path,
    new: Path,
    tmp_path: Path,
    asked: tuple[str, ...],
    runs: tuple[str, int],
    otherwise: str | None,
    again: str,
) -> None:
    rows = reviews_task(tmp_path / "calibrated.csv")
    wishes: dict[str, Any] = {"consistency": True, "max_loss": 0.9, "policy": POLICY}
    offramp.calibrate(folder, rows, split="test", precision="bf16", max_length=16, device="cpu", **wishes)
    promise(folder, limit=0.001)
    done = run("check", folder, new, *COLUMNS, "--device", "cpu", *asked)
    assert done.status == 1, done.err
    [kept] = (folder / "evaluation").glob("file-new/trace.npz")
    trace = Trace.load(kept)
    assert (trace.precision, trace.max_length) == runs
    said = f"These rows are run otherwise than was calibrated: {otherwise}."
    assert (said in done.out) == (otherwise is not None)
    assert ("run otherwise" in done.out) == (otherwise is not None)
    assert f" {again} --max-loss 0.001" in done.out


def test_rows_that_cannot_tell_are_a_warning(run: Run, folder: Path, new: Path) -> None:
    done = run("check", folder, new, *COLUMNS, "--limit", "1")
    assert done.status == 0
    assert "cannot tell" in done.err
    assert "unknown" in done.out
    assert "check about" in done.out


def test_json_is_one_line(run: Run, folder: Path, new: Path) -> None:
    done = run("check", folder, new, *COLUMNS, "--json")
    found = json.loads(done.out)
    assert (found["verdict"], found["rows"], found["labelled"]) == ("holds", 70, True)
    assert found["tested"]["risk"] == pytest.approx(1 - found["agreement"])
    assert found["before"]["rows"] == 80
    assert run("check", folder, "--data", new, *COLUMNS, "--json").out == done.out


@pytest.mark.parametrize(("limit", "verdict"), [(0.9, "holds"), (0.01, "unknown")])
def test_rows_without_labels(run: Run, folder: Path, tmp_path: Path, limit: float, verdict: str) -> None:
    """Accuracy loses no more than answers differ, whatever the labels are."""
    promise(folder, loss="accuracy", settings={"bound": "exact"}, limit=limit)
    with (tmp_path / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["review"], *([text] for text, _ in reviews(60, seed=4))])
    done = run("check", folder, tmp_path / "texts.csv", "--text", "review")
    assert done.status == 0, done.err
    assert "The rows have no labels" in done.out
    assert verdict in done.out
    assert ("label about" in done.out) == (verdict == "unknown")


def uncertified(folder: Path) -> None:
    (folder / "policy.json").write_text('{"policy": "entropy", "threshold": 0.5}')


def other_weights(folder: Path) -> None:
    model = offramp.load(folder)
    with torch.no_grad():
        model.exits.classifiers["0"].bias += 1
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: (folder / "policy.json").unlink(), "calibrate it first"),
        (uncertified, "without a certificate"),
        (lambda folder: (folder / "policy.json").write_text("{"), "holds no certificate"),
        (other_weights, "other weights"),
    ],
)
def test_models_that_are_refused(run: Run, folder: Path, new: Path, change: Callable[[Path], Any], why: str) -> None:
    change(folder)
    done = run("check", folder, new, *COLUMNS)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert why in done.err


@pytest.mark.parametrize(
    ("name", "content", "columns", "why"),
    [
        ("none.csv", None, (), "does not exist"),
        ("empty.csv", "", (), "is empty"),
        ("header.csv", "review,verdict\n", COLUMNS, "no rows"),
        ("other.csv", "a,b\nc,d\n", (), "--text"),
        ("other.csv", "a,b\nc,d\n", COLUMNS, "review"),
        ("label.csv", "review,verdict\na film,odd\n", COLUMNS, "'odd'"),
    ],
)
def test_rows_that_are_refused(
    run: Run, folder: Path, tmp_path: Path, name: str, content: str | None, columns: tuple[str, ...], why: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = run("check", folder, tmp_path / name, *columns)
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert why in done.err


def test_the_rows_of_the_calibration_say_nothing_new(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("check", folder, tmp_path / "calibrated.csv", *COLUMNS)
    assert done.status == 2
    assert "calibrated on" in done.err


def test_no_folder_and_no_rows(run: Run, folder: Path, new: Path, tmp_path: Path) -> None:
    assert "no folder" in run("check", tmp_path / "none", new).err
    assert "which rows?" in run("check", folder).err
    assert "Name one file" in run("check", folder, new, "--data", new).err


def test_a_model_that_says_nan(run: Run, folder: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that broke after calibration are other weights; so here only what they say is broken."""
    made = Trace.__init__

    def broken(self: Trace, **fields: Any) -> None:
        fields["logits"] = fields["logits"].copy()
        fields["logits"][0, 0] = float("nan")
        made(self, **fields)

    monkeypatch.setattr(Trace, "__init__", broken)
    done = run("check", folder, new, *COLUMNS)
    assert done.status == 2
    assert "NaN" in done.err


def test_spans(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(3)
    folder = write(tiny_model(span=True), tmp_path / "model", None)
    seen = squad_task(test=squad_file(tmp_path / "seen.json"))
    wishes: dict[str, Any] = {"consistency": True, "max_loss": 0.95, "policy": "entropy(0.9)"}
    offramp.calibrate(folder, seen, split="test", max_length=24, **wishes)
    done = run("check", folder, squad_file(tmp_path / "new.json", seed=5), "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert [one["name"] for one in found["shifts"]] == ["exits"]
    [kept] = (folder / "evaluation").glob("file-new/trace.npz")
    assert found["cost"] == SpanTrace.load(kept).point("entropy(0.9)").cost, "a mean over windows, as at calibration"


def test_gates_with_the_threshold_that_was_calibrated(tmp_path: Path, new: Path) -> None:
    """Answers are those of the raised threshold, and are compared with full depth of the model's own."""
    folder = write(tiny_gated_model(num_labels=2), tmp_path / "model", None)
    rows = reviews_task(reviews_file(tmp_path / "calibrated.csv", rows=80))
    offramp.calibrate(folder, rows, split="test", consistency=True, max_loss=0.9, policy="fixed(4)")
    own = check(folder, reviews_task(new), split="test")
    assert own.agreement == 1
    path = folder / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"gate_threshold": 50.0}))
    under = check(folder, reviews_task(new), split="test")
    assert under.agreement < 1
