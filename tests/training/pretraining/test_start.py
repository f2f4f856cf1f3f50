"""Going on from an encoder whose words stand elsewhere: each word keeps what is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from offramp.errors import OfframpError
from offramp.training.pretraining import Corpus, Watching, prepare_corpus, pretrain
from offramp.training.pretraining.heads import word_embeddings
from offramp.training.pretraining.start import starting_model
from tests.training.pretraining.small_corpus import SHAPE, plan, small_corpus, small_text

NEVER = Watching(0, 0, 0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="module")
def corpus(home: Path) -> Corpus:
    return small_corpus(home)


@pytest.fixture(scope="module")
def start(home: Path, corpus: Corpus) -> Path:
    pretrain(plan(steps=3, warmup=0.0), corpus, home / "start", watching=NEVER, quiet=True)
    return home / "start"


@pytest.mark.parametrize("vocabulary", ["cut", "learnt", "same"])
def test_words_are_found_by_name(vocabulary: str, corpus: Corpus, start: Path, tmp_path: Path) -> None:
    text = corpus.folder.parent / "text.txt"
    if vocabulary == "learnt":  # of other text, in which there are other words
        text = small_text(tmp_path / "text.txt", documents=7)
        text.write_text(text.read_text().replace("a", "z"))
    wanted = "wordpiece" if vocabulary == "learnt" else start
    size = {"cut": 90, "learnt": 70}.get(vocabulary)
    other = prepare_corpus([text], tmp_path / "corpus", wanted, size=size, held_out=0.3)
    model = starting_model(plan(start=str(start)), other.tokenizer)
    before = AutoModelForMaskedLM.from_pretrained(start)
    known = AutoTokenizer.from_pretrained(start).get_vocab()
    assert model.backbone.vocab_size == len(other.tokenizer)
    shared = 0
    for word, number in other.tokenizer.get_vocab().items():
        row, bias = word_embeddings(model.backbone)[number], model.heads.bias[number]
        if word in known:
            shared += 1
            assert torch.equal(row, before.bert.embeddings.word_embeddings.weight[known[word]]), word
            assert torch.equal(bias, before.cls.predictions.bias[known[word]]), word
        else:
            assert float(bias.detach()) == 0
            assert float(row.detach().abs().max()) > 0
    assert shared > 20
    assert (shared == len(other.tokenizer)) == (vocabulary != "learnt")
    pretrain(plan(start=str(start), steps=1), other, tmp_path / "out", watching=NEVER, quiet=True)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == len(other.tokenizer)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "out").config.vocab_size == len(other.tokenizer)


ROBERTA = {**SHAPE, "model_type": "roberta", "max_position_embeddings": 66}


@pytest.mark.parametrize("types", [1, 2])
def test_a_roberta_has_as_many_token_types_as_it_has(types: int, corpus: Corpus, tmp_path: Path) -> None:
    shape = {**ROBERTA, "type_vocab_size": types}
    pretrain(plan(shape=shape, steps=1, order=True), corpus, tmp_path / "one", watching=NEVER, quiet=True)
    further = plan(start=str(tmp_path / "one"), steps=1, order=True)
    pretrain(further, corpus, tmp_path / "two", watching=NEVER, quiet=True)
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "two").config.type_vocab_size == types


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
def test_padding_is_what_the_vocabulary_pads_with(family: str, corpus: Corpus, tmp_path: Path) -> None:
    shape = {**ROBERTA, "model_type": family} | ({"embedding_size": 16} if family == "albert" else {})
    pretrain(plan(shape=shape, steps=1), corpus, tmp_path / "out", watching=NEVER, quiet=True)
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert model.config.pad_token_id == corpus.tokenizer.pad_token_id
    embeddings = model.get_input_embeddings()
    assert embeddings.padding_idx in (None, corpus.tokenizer.pad_token_id)


def test_a_roberta_does_not_count_positions_from_elsewhere(corpus: Corpus, tmp_path: Path) -> None:
    pretrain(plan(shape=ROBERTA, steps=1), corpus, tmp_path / "out", watching=NEVER, quiet=True)
    other = prepare_corpus([corpus.folder.parent / "text.txt"], tmp_path / "corpus", size=100, held_out=0.05)
    tokenizer = other.tokenizer
    tokenizer.pad_token = tokenizer.unk_token
    with pytest.raises(OfframpError, match="pads with number 1, and this RoBERTa counts positions from 0"):
        starting_model(plan(start=str(tmp_path / "out")), tokenizer)
