"""Pairs of texts: how they are read and dealt out, and that exits learn from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from offramp.errors import OfframpError
from offramp.training.pretraining import Corpus, Watching, pretrain
from offramp.training.pretraining.course import Course
from offramp.training.pretraining.groups import exit_groups, group_at
from offramp.training.pretraining.pairs import PairRows, PairSource, read_pairs
from offramp.training.pretraining.start import starting_model
from tests.training.pretraining.small_corpus import plan, small_corpus, small_pairs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def test_a_pair_is_read_as_the_tokenizer_writes_it(corpus: Corpus, tmp_path: Path) -> None:
    pairs = read_pairs(small_pairs(tmp_path / "pairs.csv"), corpus.tokenizer)
    rows = PairSource(pairs, len(pairs.ids), seed=0).step(0)
    assert corpus.tokenizer.backend_tokenizer.truncation is None, "would be saved with the model"
    first, second = (tmp_path / "pairs.csv").read_text().splitlines()[1].split(",")[:2]
    expected = corpus.tokenizer(first, second, return_token_type_ids=True)
    length = len(expected["input_ids"])
    assert rows.ids[0, :length].tolist() == expected["input_ids"]
    assert rows.types[0, :length].tolist() == expected["token_type_ids"]
    assert rows.mask[0].tolist() == [1] * length + [0] * (rows.mask.shape[1] - length)
    assert abs(float(rows.alike.mean())) < 1e-5
    assert float(rows.alike.std(correction=0)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_pairs_come_as_often_as_asked_and_to_every_group(
    share: float, groups: int, corpus: Corpus, tmp_path: Path
) -> None:
    pairs = read_pairs(small_pairs(tmp_path / "pairs.csv"), corpus.tokenizer)
    chosen = plan(steps=60, pairs=str(tmp_path / "pairs.csv"), pairs_share=share, groups=groups)
    course, dealt = Course(corpus.store.train, corpus.words, chosen, pairs=pairs), exit_groups(4, groups)
    steps = [(isinstance(course.rows(step), PairRows), group_at(course.turn(step), dealt)) for step in range(60)]
    assert sum(paired for paired, _ in steps) == round(60 * share)
    for paired in (True, False):
        met = [group for kind, group in steps if kind == paired]
        counts = [met.count(group) for group in dealt]
        assert max(counts) - min(counts) <= 1
    assert course.tokens_before(60) == (60 - round(60 * share)) * 8 * 32


def test_an_epoch_takes_every_pair_once(corpus: Corpus, tmp_path: Path) -> None:
    pairs = read_pairs(small_pairs(tmp_path / "pairs.csv"), corpus.tokenizer)
    source = PairSource(pairs, 8, seed=3)
    epochs = [torch.cat([source.step(8 * epoch + step).alike for step in range(8)]) for epoch in range(2)]
    for epoch in epochs:
        np.testing.assert_allclose(np.sort(epoch), np.sort(pairs.alike), atol=1e-6)
    assert not torch.equal(*epochs)
    assert torch.equal(PairSource(pairs, 8, seed=3).step(9).ids, source.step(9).ids)


def test_every_exit_learns_how_alike_they_are(corpus: Corpus, tmp_path: Path) -> None:
    pairs = small_pairs(tmp_path / "pairs.csv")
    chosen = plan(steps=240, batch_size=16, order=False, pairs=str(pairs), pairs_share=0.8, learning_rate=0.02)
    pretrain(chosen, corpus, tmp_path / "out", watching=Watching(log_every=40, score_every=0), quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "out" / "pretraining.jsonl").read_text().splitlines()]
    training = [line["training"] for line in lines if "training" in line]
    assert all(last < 0.6 * first for first, last in zip(training[0]["alike"], training[-1]["alike"], strict=True))
    assert all(last < first for first, last in zip(training[0]["words"], training[-1]["words"], strict=True))
    assert "alike" not in json.loads((tmp_path / "out" / "pretraining.json").read_text())["held_out"]


def test_what_is_padded_does_not_count(corpus: Corpus, tmp_path: Path) -> None:
    model = starting_model(plan(pairs=str(small_pairs(tmp_path / "pairs.csv"))), corpus.tokenizer).eval()
    rows = PairSource(read_pairs(tmp_path / "pairs.csv", corpus.tokenizer), 8, seed=0).step(0)
    longest = int(rows.mask.sum(1).max())
    cut = PairRows(rows.ids[:, :longest], rows.types[:, :longest], rows.mask[:, :longest], rows.alike)
    torch.testing.assert_close(model(rows, range(4)), model(cut, range(4)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,label\na,1\nb,2\n", "two columns of texts"),
        ("text1,text2,label\na,b,1\nb,c,1\n", "equally alike"),
        ("text1,text2,label\na,b,1\nb,c,x\n", "pairs.csv:3: label 'x': expected a number"),
        ("text1,text2,label\na,b,1\nb,c,2\n", "there are 2 pairs, and a step takes 8"),
    ],
)
def test_tables_that_will_not_do(text: str, message: str, corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(OfframpError, match=message):
        pretrain(plan(pairs=str(tmp_path / "pairs.csv")), corpus, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
