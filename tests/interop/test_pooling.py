"""What new exits read of an encoder: what it was trained to be read by, where it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

import offramp
from tests.tiny import SHAPE


def bert_folder(folder: Path, sentence: str | None = None, fine_tuned: bool = False, **settings: Any) -> Path:
    """A Hugging Face encoder or classifier, beside what sentence-transformers would say of its pooling."""
    config = transformers.BertConfig(**SHAPE, **settings)
    made = transformers.BertForSequenceClassification if fine_tuned else transformers.BertModel
    made(config).save_pretrained(folder)
    if sentence is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(sentence)
    return folder


MEAN = '{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}'


@pytest.mark.parametrize(
    ("told", "pooling"),
    [
        ({}, "first"),
        ({"sentence": MEAN}, "mean"),
        ({"sentence": '{"pooling_mode_max_tokens": true, "word_embedding_dimension": 16}'}, "max"),
        ({"sentence": '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}'}, "first"),
        ({"sentence": '{"pooling_mode_lasttoken": true}'}, "first"),
        ({"sentence": MEAN, "fine_tuned": True}, "first"),
        ({"exit_pooling": "first+mean"}, "first+mean"),
        ({"sentence": MEAN, "exit_pooling": "max"}, "max"),
    ],
    ids=str,
)
def test_an_encoder_is_read_by_what_it_was_trained_for(told: dict[str, Any], pooling: str, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert", **told)
    assert set(offramp.load(folder).config.poolings) == {pooling}
    assert set(offramp.load(folder, pooling="max").config.poolings) == {"max"}


def test_models_in_the_box_are_read_by_the_mean() -> None:
    for name in ("offramp-mini", "offramp-mini-albert"):
        assert set(offramp.load(name).config.poolings) == {"mean"}


@pytest.mark.parametrize(
    ("told", "message"),
    [({"exit_pooling": "last"}, "config.json: pooling 'last': use first"), ({"sentence": "{"}, "1_Pooling.*not valid")],
)
def test_a_pooling_that_cannot_be_read_is_named(told: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert", **told)
    with pytest.raises(offramp.OfframpError, match=message):
        offramp.load(folder)
