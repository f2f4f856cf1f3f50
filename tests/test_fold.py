"""`offramp fold`: the folder it writes, what it says, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import offramp
from offramp.models import GateSettings
from offramp.recipes import EBERT, Schedule
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.generated import backbone_folder, reviews_file
from tests.prediction.models import model_folder
from tests.tiny import tiny_batch, tiny_model


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model trained to keep half."""
    folder = tmp_path_factory.mktemp("gated")
    task = offramp.task(data=reviews_file(folder / "reviews.csv", 120), label="verdict")
    recipe = EBERT(target=0.5, penalty=20.0, schedule=Schedule(learning_rate=5e-3, epochs=4, batch_size=16))
    offramp.train(backbone_folder(folder / "backbone"), task, folder / "model", recipe, quiet=True)
    return folder / "model"


def test_folded_answers_as_before(gated: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    done = run("fold", gated, tmp_path / "folded")
    assert done.status == 0, done.err
    before, after = offramp.load(gated), offramp.load(tmp_path / "folded")
    settings = after.config.gate_settings
    assert settings is not None
    assert settings.folded is not None
    assert sum(layer.heads for layer in settings.folded) < 12
    assert f"{settings.folded[0].neurons}" in done.out
    assert sum(p.numel() for p in after.parameters()) < sum(p.numel() for p in before.parameters())
    texts = [line.split(",")[0] for line in (gated.parent / "reviews.csv").read_text().splitlines()[1:40]]
    for one, other in zip(offramp.predict(before, texts), offramp.predict(after, texts), strict=True):
        assert one.label == other.label
        assert one.score == pytest.approx(other.score, abs=1e-4)
    record = json.loads((tmp_path / "folded" / "training.json").read_text())
    assert record["folded"]["rows"] == 108
    assert record["recipe"]["name"] == "ebert"
    card = (tmp_path / "folded" / "README.md").read_text()
    assert "## Folded" in card
    assert "# folded\n" in card
    assert "offramp evaluate folded\n" in card
    assert offramp.evaluate(tmp_path / "folded").gate_report().ratio < 1


def test_by_texts_without_labels(gated: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    (tmp_path / "traffic.csv").write_text("review\na good film\nthe bad plot\nit was very fine\n")
    done = run("fold", gated, tmp_path / "folded", "--data", tmp_path / "traffic.csv", "--text", "review")
    assert done.status == 0, done.err
    assert json.loads((tmp_path / "folded" / "training.json").read_text())["folded"]["rows"] == 3


def test_by_questions(tmp_path: Path, run: Callable[..., Result]) -> None:
    folder = model_folder(tmp_path / "span", ("bad", "good"), span=True, layers=2)
    model = offramp.load(folder)
    model.add_gates(GateSettings(sparsity=0.4))
    model.save_pretrained(folder)
    squad_file(tmp_path / "questions.json")
    done = run("fold", folder, tmp_path / "folded", "--data", tmp_path / "questions.json")
    assert done.status == 0, done.err
    assert offramp.load(tmp_path / "folded").gates.settings.folded is not None


def test_refusals(gated: Path, tmp_path: Path, run: Callable[..., Result]) -> None:
    ungated = tiny_model()
    ungated.save_pretrained(tmp_path / "ungated")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    (tmp_path / "empty.csv").write_text("")
    for arguments, message in (
        ((tmp_path / "ungated", tmp_path / "new"), "has no gates to fold"),
        ((tmp_path / "nowhere", tmp_path / "new"), "nowhere"),
        ((gated, tmp_path / "there"), "exists and is not empty"),
        ((gated, tmp_path / "new", "--rows", "0"), "rows 0"),
        ((gated, tmp_path / "new", "--data", "a.csv", "--task", "rte", "--data-dir", tmp_path), "one of the two"),
        ((gated, tmp_path / "new", "--constant", "0.7"), "constant is a share"),
        ((gated, tmp_path / "new", "--data", tmp_path / "empty.csv"), "empty.csv"),
    ):
        refused = run("fold", *arguments)
        assert refused.status == 2, arguments
        assert message in refused.err
        assert not (tmp_path / "new").exists()
    assert (tmp_path / "there" / "file").read_text() == "mine"


def test_a_folded_model_is_not_trained_on(gated: Path, tmp_path: Path) -> None:
    offramp.fold(gated, tmp_path / "folded")
    with pytest.raises(offramp.OfframpError, match="folded into its weights"):
        EBERT(target=0.5).prepare(offramp.load(tmp_path / "folded"))


def test_topk_gates_cannot_be_folded(tmp_path: Path, gated: Path) -> None:
    model = offramp.load(gated)
    model.gates.change(GateSettings(sparsity=0.5, heads="topk"))
    model.config.gates = model.gates.settings.to_json()
    model.save_pretrained(tmp_path / "topk")
    for file in gated.glob("*token*"):
        (tmp_path / "topk" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "topk" / "training.json").write_bytes((gated / "training.json").read_bytes())
    with torch.no_grad():
        assert offramp.load(tmp_path / "topk")(**tiny_batch(2)).gates is not None
    with pytest.raises(offramp.OfframpError, match="topk cannot be folded"):
        offramp.fold(tmp_path / "topk", tmp_path / "folded")
