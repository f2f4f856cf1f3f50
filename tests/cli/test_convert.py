"""`offramp convert`, as a user types it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import offramp
from tests.command_line import Result
from tests.tiny import tiny_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


def test_convert(run: Callable[..., Result], tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("config.json", "model.safetensors"):
        (source / name).write_bytes((GOLDEN / "deebert_bert" / name).read_bytes())
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "fine", "film"]
    (source / "vocab.txt").write_text("\n".join(words))
    done = run("convert", source, tmp_path / "out" / "deebert")
    assert done.status == 0, done.err
    assert "bert, 4 layers, exits after 1-4, classification, 0.0 M parameters" in done.out
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out" / "deebert")
    torch.testing.assert_close(model(**tiny_batch()).logits, offramp.load(source)(**tiny_batch()).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "deebert")
    assert tokenizer("A fine film")["input_ids"] == [2, 5, 6, 7, 3]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["deebert"]


@pytest.mark.parametrize(
    "name",
    [
        "deebert_roberta",
        "romebert_gr",
        "elasticbert_regression",
        "elbert_c3",
        "ebert_bert_cls",
        "ebert_bert_qa",
        "ebert_roberta_cls",
    ],
)
def test_convert_from_python(name: str, tmp_path: Path) -> None:
    offramp.convert(GOLDEN / name, tmp_path / "model")
    again = offramp.load(tmp_path / "model")
    for ours, theirs in zip(
        again(**tiny_batch()).exit_logits, offramp.load(GOLDEN / name)(**tiny_batch()).exit_logits, strict=True
    ):
        assert torch.equal(ours, theirs)


def test_options(run: Callable[..., Result], tmp_path: Path) -> None:
    done = run("convert", GOLDEN / "elasticbert_dynamic", tmp_path / "cut", "--layers", "2", "--last-exit-only")
    assert "elasticbert, 2 layers, exits after 2, classification" in done.out
    done = run("convert", GOLDEN / "deebert_bert", tmp_path / "legacy", "--legacy-last-exit")
    assert "exits after 1, 2, 3, 4, 4" in done.out


def test_what_is_there_is_not_lost(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep me")
    refused = run("convert", GOLDEN / "deebert_bert", tmp_path)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.strip() == f"error: {tmp_path} exists and is not empty: name another folder, or say --overwrite"
    refused = run("convert", GOLDEN / "deebert_bert", tmp_path, "--overwrite")
    assert "is not a model folder: nothing in it will be overwritten" in refused.err
    assert (tmp_path / "precious").read_text() == "keep me"


def test_overwriting_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one takes the old one's place; if it cannot, the old one is still there."""
    offramp.convert(GOLDEN / "deebert_bert", tmp_path / "model")
    rename = Path.rename

    def fails_in_the_end(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("disk full")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails_in_the_end)
    with pytest.raises(offramp.OfframpError, match="disk full"):
        offramp.convert(GOLDEN / "elbert_c2", tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    assert offramp.load(tmp_path / "model").config.backbone_config.model_type == "bert"
    offramp.convert(GOLDEN / "elbert_c2", tmp_path / "model", overwrite=True)
    assert offramp.load(tmp_path / "model").config.backbone_config.model_type == "albert"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_where_no_folder_can_be(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for destination in ("file", "file/below"):
        refused = run("convert", GOLDEN / "deebert_bert", tmp_path / destination)
        assert refused.status == 2
        assert refused.err.startswith(f"error: {tmp_path}/file")


def test_a_failed_conversion_leaves_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    broken = shutil.copytree(GOLDEN / "elbert_c2", tmp_path / "broken")
    (broken / "config.json").write_text((GOLDEN / "elbert_c3" / "config.json").read_text().replace("bias_1", "bias_9"))
    failed = run("convert", broken, tmp_path / "new")
    assert failed.status == 2
    assert failed.err.startswith("error: ")
    assert "Traceback" not in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_help_shows_examples(run: Callable[..., Result]) -> None:
    done = run("convert", "--help")
    assert done.status == 0
    assert "offramp convert fnlp/elasticbert-base" in done.out
    assert "convert" in run("--help").out
