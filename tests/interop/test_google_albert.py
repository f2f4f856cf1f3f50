"""Google's own ALBERT checkpoints: TensorFlow's files, their tokenizer and their GELU."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers

import offramp
from offramp.interop.vocabulary import find_tokenizer
from tests.interop.test_load import _nothing_goes_unused, same_weights
from tests.originals import TF_ALBERT, google_albert

__all__ = ["_nothing_goes_unused"]  # a fixture of every test


@pytest.mark.parametrize("path", [TF_ALBERT, TF_ALBERT / "model.ckpt-best"], ids=["folder", "prefix"])
def test_google_albert(path: Path) -> None:
    model = offramp.load(path, classifiers=1, poolers=1)
    assert (model.backbone.depth, model.backbone.hidden_size, len(model.exits)) == (2, 8, 2)
    layer = model.backbone.model.encoder.albert_layer_groups[0].albert_layers[0]
    assert layer.ffn.weight.shape == (16, 8)
    assert model(input_ids=torch.tensor([[1, 2, 3]])).logits.shape == (1, 2)


def test_several_tf_checkpoints_in_one_folder(tmp_path: Path) -> None:
    for step in (9, 10):
        for file in TF_ALBERT.glob("model.ckpt-best.*"):
            shutil.copy(file, tmp_path / file.name.replace("best", str(step)))
    shutil.copy(TF_ALBERT / "albert_config.json", tmp_path)
    with pytest.raises(offramp.OfframpError, match=r"several checkpoints \(model.ckpt-10, model.ckpt-9\): name one"):
        offramp.load(tmp_path)
    assert same_weights(offramp.load(tmp_path / "model.ckpt-9.index").backbone, offramp.load(TF_ALBERT).backbone)


@pytest.mark.parametrize("pieces", ["30k-clean", "spiece"])
def test_google_albert_brings_its_tokenizer(pieces: str, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="reading SentencePiece models needs protobuf")
    sentencepiece = pytest.importorskip("sentencepiece")
    google_albert(tmp_path / "google", pieces)
    offramp.convert(tmp_path / "google", tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    reference = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "google" / f"{pieces}.model"))
    assert tokenizer("A fine film")["input_ids"] == [2, *reference.encode("a fine film"), 3]


def test_missing_sentencepiece_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spiece.model").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        offramp.OfframpError, match=r"spiece.model can be read with: pip install sentencepiece protobuf"
    ):
        find_tokenizer(tmp_path, "albert")


def test_google_gelu_is_the_tanh_formula() -> None:
    assert offramp.load(TF_ALBERT).config.backbone_config.hidden_act == "gelu_new"
