"""A shipped name means the folder in the package, wherever a model is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM

import offramp
from offramp import OfframpError, shipped
from offramp.interop.checkpoint import read_checkpoint
from offramp.models import MultiExitForSequenceClassification
from offramp.tasks import own_task
from offramp.tasks.encoding import text_encoder
from offramp.training.plan import Plan
from offramp.training.published import backbone_family, published_exits
from tests.calibration.made_model import NAMES
from tests.command_line import Result
from tests.generated import backbone_folder, reviews_file

Run = Callable[..., Result]
SST2 = "offramp-mini-sst2"
TEXT = "a good film"


def new_rows(box: Path) -> Path:
    return box.parent / "new.csv"


def new_task(box: Path) -> Any:
    return own_task(test=new_rows(box), text="review", label="verdict", labels=NAMES)


ENTRIES: dict[str, Callable[[Path], object]] = {
    "load": lambda box: offramp.load(SST2),
    "read_checkpoint": lambda box: read_checkpoint("offramp-mini"),
    "from_pretrained": lambda box: MultiExitForSequenceClassification.from_pretrained(SST2),
    "resolve for others": lambda box: AutoModelForMaskedLM.from_pretrained(shipped.resolve("offramp-mini")),
    "Engine": lambda box: offramp.Engine(SST2)([TEXT]),
    "predict": lambda box: offramp.predict(SST2, [TEXT]),
    "tokenizer": lambda box: text_encoder(offramp.load("offramp-mini-albert"))([TEXT]),
    "evaluate": lambda box: offramp.evaluate(SST2, new_task(box), split="test"),
    "evaluate the folder": lambda box: offramp.evaluate(box / SST2, new_task(box), split="test"),
    "check": lambda box: offramp.check(SST2, new_task(box), split="test"),
    "calibrate, dry": lambda box: offramp.calibrate(SST2, new_task(box), max_loss=0.05, split="test", dry_run=True),
    "export": lambda box: offramp.export(SST2, "exported"),
    "convert": lambda box: offramp.convert(SST2, "copy"),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_in_python(box: Path, entry: str) -> None:
    if entry == "export":
        pytest.importorskip("onnx")
    ENTRIES[entry](box)
    assert {path.name for path in Path().iterdir()} <= {"exported", "copy"}


COMMANDS: dict[str, tuple[tuple[str, ...], str | None]] = {
    "predict": (("predict", SST2, TEXT), None),
    "evaluate": (
        ("evaluate", SST2, "--data", "NEW", "--no-report"),
        f"{SST2}-results/evaluation/file-new/results.json",
    ),
    "evaluate --out": (("evaluate", SST2, "--data", "NEW", "--no-report", "--out", "found"), "found/results.json"),
    "bench": (
        ("bench", SST2, "--seconds", "0", "--rows", "8", "--batch-sizes", "1", "--precision", "fp32"),
        f"{SST2}-results/bench/bench.json",
    ),
    "check": (("check", SST2, "NEW"), f"{SST2}-results/evaluation/file-new/trace.npz"),
    "calibrate --dry-run": (("calibrate", SST2, "--data", "NEW", "--max-loss", "0.05", "--dry-run"), None),
    "export": (("export", SST2, "exported"), "exported/segments.json"),
    "convert": (("convert", SST2, "copy"), "copy/policy.json"),
    "train": (
        (
            "train",
            "--backbone",
            "offramp-mini",
            "--data",
            "reviews.csv",
            "--label",
            "verdict",
            "--epochs",
            "1",
            "--out",
            "run",
            "--quiet",
        ),
        "run/model.safetensors",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_on_the_command_line(run: Run, box: Path, command: str) -> None:
    if command in ("bench", "export"):
        pytest.importorskip("onnxruntime")
    reviews_file(Path("reviews.csv"), 40)
    words, left = COMMANDS[command]
    done = run(*(str(new_rows(box)) if word == "NEW" else word for word in words))
    assert done.status == 0, done.err
    assert {path.parts[0] for path in Path().iterdir()} == {"reviews.csv", *([Path(left).parts[0]] if left else [])}
    assert left is None or Path(left).is_file()


def test_its_policy_is_used_and_its_promise_told(run: Run, box: Path) -> None:
    done = run("predict", SST2, TEXT)
    certificate = json.loads((box / SST2 / "policy.json").read_text())["certificate"]
    assert certificate["promise"]["text"] in done.err
    assert json.loads(done.out)["exit_layer"] < 4
    done = run("evaluate", SST2, "--data", str(new_rows(box)), "--no-report", "--json")
    assert json.loads(done.out)["point"]["policy"] == str(offramp.Engine(SST2).policy)


def test_evaluations_of_shipped_models_are_compared_by_name(run: Run, box: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    shutil.copytree(box / SST2, "mine")
    assert run("compare", SST2, "mine").status == 2
    for name in (SST2, "mine"):
        assert run("evaluate", name, "--data", str(new_rows(box)), "--no-report").status == 0
    assert run("compare", SST2, "mine").status == 0


def test_fold_says_that_there_are_no_gates(run: Run, box: Path) -> None:
    done = run("fold", SST2, "folded")
    assert (done.status, "has no gates to fold" in done.err) == (2, True)


def test_what_would_write_into_the_package_is_refused(run: Run, box: Path) -> None:
    done = run("calibrate", SST2, "--data", str(new_rows(box)), "--max-loss", "0.05")
    assert (done.status, done.out) == (2, "")
    assert "offramp convert offramp-mini-sst2 my-mini-sst2" in done.err
    for model in (SST2, box / SST2, offramp.load(SST2)):
        with pytest.raises(OfframpError, match="stays as it is"):
            offramp.calibrate(model, new_task(box), max_loss=0.05, split="test")


def test_a_copy_is_ones_own(run: Run, box: Path) -> None:
    """Card, policy and promise come along, and hold for the copy's weights."""
    assert run("convert", SST2, "copy").status == 0
    assert Path("copy/policy.json").read_bytes() == (box / SST2 / "policy.json").read_bytes()
    assert "confidence" in run("predict", "copy", TEXT).err
    assert "calibrated for other weights" not in run("predict", "copy", TEXT).err
    done = run("calibrate", "copy", "--data", str(new_rows(box)), "--max-loss", "0.05")
    assert done.status == 0, done.err
    offramp.convert(SST2, "cut", layers=2)
    assert not Path("cut/policy.json").exists()


@pytest.mark.parametrize("name", ["offramp-mni", "offramp-large", "Offramp-Mini", "oframp-mini"])
@pytest.mark.parametrize("command", ["predict", "evaluate", "bench", "calibrate", "train", "convert"])
def test_a_name_that_is_nearly_one(run: Run, box: Path, name: str, command: str) -> None:
    reviews_file(Path("reviews.csv"), 10)
    more = {
        "predict": (name, TEXT),
        "calibrate": (name, "--max-loss", "0.1"),
        "train": ("--backbone", name, "--data", "reviews.csv", "--label", "verdict", "--out", "run"),
        "convert": (name, "copy"),
    }
    done = run(command, *more.get(command, (name,)))
    assert (done.status, len(done.err.splitlines())) == (2, 1), done.err
    assert "offramp-mini, offramp-mini-albert, offramp-mini-sst2" in done.err
    assert {path.name for path in Path().iterdir()} == {"reviews.csv"}


def test_other_names_are_still_the_hubs(box: Path) -> None:
    for name in ("bert-base-uncased", "someone/offramp-mini", "minilm"):
        assert shipped.resolve(name) == name
        with pytest.raises(AssertionError, match="the hub was asked"):
            offramp.load(name)


def test_an_empty_box_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "BOX", tmp_path)
    with pytest.raises(OfframpError, match="comes without models"):
        offramp.load("offramp-mini")


def test_a_local_folder_of_the_same_name_counts_first(box: Path) -> None:
    backbone_folder(Path("offramp-mini"), layers=2)
    assert offramp.load("offramp-mini").backbone.depth == 2
    assert Plan("offramp-mini", {}, {}).backbone == str(Path("offramp-mini").absolute())


def test_a_plan_keeps_the_name(box: Path) -> None:
    """So that a run can go on with another installation."""
    Path("offramp-mini").touch()  # a file is no model
    assert Plan("offramp-mini", {}, {}).backbone == "offramp-mini"


def test_family_and_exits_are_known_before_loading(box: Path) -> None:
    assert [backbone_family(name) for name in ("offramp-mini", "offramp-mini-albert", SST2)] == [
        "bert",
        "albert",
        "bert",
    ]
    assert published_exits("elbert", "offramp-mini-albert") == {"poolers": 1, "classifiers": 1}
    assert published_exits("elbert", SST2) == {}


@pytest.mark.parametrize("opened", [offramp.load, MultiExitForSequenceClassification.from_pretrained])
def test_half_precision_is_for_files(box: Path, opened: Callable[[str], Any]) -> None:
    assert {tensor.dtype for tensor in read_checkpoint(SST2).tensors.values()} == {torch.float16}
    assert {weight.dtype for weight in opened(SST2).parameters()} == {torch.float32}


def test_another_precision_on_request(box: Path) -> None:
    model = MultiExitForSequenceClassification.from_pretrained(SST2, dtype=torch.bfloat16)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
