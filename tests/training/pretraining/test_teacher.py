"""A teacher: its states, what exits learn of them, its words, and vocabularies cut from its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, BertTokenizer

from offramp.errors import Interrupted, OfframpError
from offramp.training.pretraining import Corpus, Watching, prepare_corpus, pretrain
from offramp.training.pretraining.folder import PretrainingFolder
from offramp.training.pretraining.heads import word_embeddings
from offramp.training.pretraining.model import LOSSES
from offramp.training.pretraining.rows import Layout, Rows, RowSource
from offramp.training.pretraining.start import starting_model
from offramp.training.pretraining.teacher import Teacher, read_teacher
from offramp.training.pretraining.vocabulary import cut_vocabulary, train_vocabulary
from tests.training.pretraining.small_corpus import SHAPE, plan, small_corpus, small_text

SELDOM = Watching(score_every=0, save_every=4)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def known(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder, wider than its pupils and less deep."""
    folder = tmp_path_factory.mktemp("teacher") / "encoder"
    shape = {**SHAPE, "num_hidden_layers": 2, "hidden_size": 48}
    pretrain(plan(shape=shape, steps=3, groups=1), corpus, folder, quiet=True)
    return str(folder)


def first_rows(corpus: Corpus, order: bool = False) -> Rows:
    return RowSource(corpus.store.train, corpus.words, Layout(32, 8, swapping=order), 0).step(0)


def test_the_teacher_sees_what_stood_there_before_it_was_masked(corpus: Corpus, known: str) -> None:
    rows = first_rows(corpus)
    states = read_teacher(known, corpus.tokenizer)(rows)
    whole = rows.ids.scatter(1, rows.positions, rows.targets)
    assert not torch.equal(whole, rows.ids)
    with torch.no_grad():
        expected = AutoModel.from_pretrained(known).eval()(whole).last_hidden_state.flatten(0, 1)
    expected = (expected - expected.mean(0)) / expected.std(0, correction=0)
    torch.testing.assert_close(states.flatten(0, 1), expected, atol=1e-4, rtol=1e-3)


def test_it_is_neither_trained_nor_a_part_of_the_model(corpus: Corpus, known: str) -> None:
    model = starting_model(plan(teacher=known), corpus.tokenizer).train()
    assert model.teacher is not None
    before = {name: value.clone() for name, value in model.teacher.state_dict().items()}
    model(first_rows(corpus), range(4)).sum().backward()
    assert all(parameter.grad is None for parameter in model.teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.teacher.state_dict().items())
    own = {id(parameter) for parameter in model.parameters()}
    assert own.isdisjoint(id(parameter) for parameter in model.teacher.parameters())


@pytest.mark.parametrize(("training", "asked"), [(True, 3), (False, 8)])
def test_it_is_asked_about_some_rows(training: bool, asked: int, corpus: Corpus, known: str) -> None:
    """While exits learn; they are scored on all."""
    rows = first_rows(corpus)
    model = starting_model(plan(teacher=known, teacher_share=0.3, order=False), corpus.tokenizer).train(training)
    assert model.teacher is not None
    with torch.no_grad():
        missed = model(rows, (3,))[0, LOSSES.index("teacher")]
        (_, hidden), *_ = model.states(rows, (3,))
        torch.testing.assert_close(missed, model.imitation[3](hidden[:asked], model.teacher(rows.first(asked))))


def test_every_exit_learns_to_give_its_states(corpus: Corpus, known: str, tmp_path: Path) -> None:
    def missed(weight: float) -> list[float]:
        out = tmp_path / f"weight-{weight}"
        chosen = plan(teacher=known, teacher_weight=weight, steps=60, order=False, groups=3)
        pretrain(chosen, corpus, out, watching=SELDOM, quiet=True)
        assert not any("imitation" in name for name in AutoModel.from_pretrained(out).state_dict())
        shares: list[float] = json.loads((out / "pretraining.json").read_text())["held_out"]["teacher"]
        return shares

    taught, untaught = missed(4.0), missed(0.0)
    assert len(taught) == 4
    assert all(one < other - 0.05 for one, other in zip(taught, untaught, strict=True))
    assert taught[-1] < 0.85


def test_a_stopped_run_goes_on_to_the_same_weights(corpus: Corpus, known: str, tmp_path: Path) -> None:
    chosen = plan(teacher=known, steps=8)
    whole = pretrain(chosen, corpus, tmp_path / "whole", watching=SELDOM, quiet=True)
    with pytest.raises(Interrupted, match="stopped at step 5 of 8"):
        pretrain(chosen, corpus, tmp_path / "parts", watching=replace(SELDOM, stop_at=5), quiet=True)
    parts = pretrain(chosen, corpus, tmp_path / "parts", resume=True, watching=SELDOM, quiet=True)
    for (name, one), other in zip(whole.named_parameters(), parts.parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_plan_can_be_changed_on_the_way(corpus: Corpus, known: str, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        pretrain(
            plan(teacher=known, steps=8), corpus, tmp_path / "run", watching=replace(SELDOM, stop_at=4), quiet=True
        )
    changed = plan(teacher=known, steps=10, teacher_weight=0.5)
    with pytest.raises(OfframpError, match="begun with other settings: steps was 8"):
        pretrain(changed, corpus, tmp_path / "run", resume=True, quiet=True)
    PretrainingFolder(tmp_path / "run").change_plan(changed.to_json())
    pretrain(changed, corpus, tmp_path / "run", resume=True, quiet=True)
    assert json.loads((tmp_path / "run" / "pretraining.json").read_text())["plan"]["teacher_weight"] == 0.5


@pytest.mark.parametrize(("width", "exact"), [(64, True), (48, True), (16, False)])
def test_new_words_lie_to_each_other_as_the_teachers_do(corpus: Corpus, known: str, width: int, exact: bool) -> None:
    shape = {**SHAPE, "hidden_size": width}
    model = starting_model(plan(shape=shape, teacher=known), corpus.tokenizer)
    assert isinstance(model.teacher, Teacher)
    taught = word_embeddings(model.teacher.backbone)[model.teacher.ids]
    own = word_embeddings(model.backbone)[:, : min(width, 48)]
    apart = [torch.cdist(words, words).detach().flatten() for words in (taught, own)]
    alike = float(torch.corrcoef(torch.stack(apart))[0, 1])
    assert alike > 0.7
    assert (alike > 0.9999) == exact


def test_words_the_teacher_does_not_know_are_refused(known: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("other words, quite other words " * 9)
    other = train_vocabulary([tmp_path / "text.txt"], "wordpiece", 64)
    with pytest.raises(OfframpError, match=r"does not know \d+ of \d+ words .*--vocabulary"):
        read_teacher(known, other)


class TestCutVocabularies:
    def test_what_the_text_needs_least_goes(self, corpus: Corpus, tmp_path: Path) -> None:
        text = tmp_path / "text.txt"
        words = [word for word in corpus.tokenizer.get_vocab() if len(word) == 4 and word.isalpha()]
        text.write_text(" ".join(words[:5] * 3 + words[5:6]))
        letters = [word for word in corpus.tokenizer.get_vocab() if len(word.removeprefix("##")) == 1]
        cut = cut_vocabulary(corpus.tokenizer, [text], len(letters) + 5 + 6)
        kept = cut.get_vocab()
        assert set(kept) == {*letters, *corpus.tokenizer.all_special_tokens, *words[:6]}
        before = corpus.tokenizer.get_vocab()
        assert sorted(kept, key=kept.__getitem__) == sorted(kept, key=before.__getitem__)
        assert cut.unk_token_id not in cut(" ".join(words))["input_ids"]

    def test_a_corpus_of_cut_words_can_be_taught(self, known: str, tmp_path: Path) -> None:
        text = small_text(tmp_path / "text.txt")
        cut = prepare_corpus([text], tmp_path / "corpus", known, size=100, held_out=0.05)
        assert len(cut.tokenizer) == 100
        model = starting_model(plan(teacher=known), cut.tokenizer)
        assert model.teacher is not None
        assert model.teacher.ids.tolist() == sorted(set(model.teacher.ids.tolist()))
        assert model(first_rows(cut), range(4)).shape == (4, len(LOSSES))
        with pytest.raises(OfframpError, match=r"was made from .* name another --corpus"):
            prepare_corpus([text], tmp_path / "corpus", known, size=90, held_out=0.05)

    def test_a_larger_size_changes_nothing(self, corpus: Corpus, tmp_path: Path) -> None:
        assert cut_vocabulary(corpus.tokenizer, [], 1000) is corpus.tokenizer

    def test_what_cannot_be_cut(self, corpus: Corpus, tmp_path: Path) -> None:
        text = small_text(tmp_path / "text.txt", 10)
        with pytest.raises(OfframpError, match="characters and special tokens stay"):
            cut_vocabulary(corpus.tokenizer, [text], 6)
        with pytest.raises(OfframpError, match="only WordPiece"):
            cut_vocabulary(train_vocabulary([text], "unigram", 64), [text], 60)
        assert isinstance(corpus.tokenizer, BertTokenizer)
