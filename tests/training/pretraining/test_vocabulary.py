"""Learning a vocabulary: the same text gives the same words, and a saved one gives the same ids."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from transformers import AutoTokenizer, BertTokenizer

from offramp.errors import OfframpError
from offramp.training.pretraining import vocabulary
from offramp.training.pretraining.token_store import vocabulary_digest
from offramp.training.pretraining.vocabulary import sentence_ends, train_vocabulary
from tests.training.pretraining.written import made_up, write_text

SENTENCES = [
    "The film was good.",
    'Was it "good"? It was!',
    "A clumsy film; the cast... is wasted.",
    "Films in 1999 (two).",
]


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text as it is written, with every sentence of `SENTENCES` in it often."""
    rng = random.Random(0)
    texts = [[rng.choice(SENTENCES) + " " + made_up(rng, 12) for _ in range(3)] for _ in range(60)]
    return write_text(tmp_path_factory.mktemp("ordinary") / "text.txt", texts)


@pytest.fixture(scope="module", params=vocabulary.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestVocabulary:
    @pytest.mark.parametrize("lowercase", [True, False])
    def test_a_saved_vocabulary_gives_the_same_ids(
        self, tmp_path: Path, ordinary: Path, kind: str, lowercase: bool
    ) -> None:
        made = train_vocabulary([ordinary], kind, 150, lowercase, max_length=99)
        made.save_pretrained(tmp_path)
        opened = AutoTokenizer.from_pretrained(tmp_path)
        assert type(opened) is type(made)
        assert len(opened) == len(made) == 150
        assert opened.get_vocab() == made.get_vocab()
        assert opened.model_max_length == 99
        assert vocabulary_digest(opened) == vocabulary_digest(made)
        for text in SENTENCES:
            pair = opened(text, "film!")
            assert dict(pair) == dict(made(text, "film!"))
            second = pair["input_ids"].index(opened.sep_token_id) + 1
            assert pair["token_type_ids"] == [0] * second + [1] * (len(pair["input_ids"]) - second)
            read = opened.decode(opened(text)["input_ids"], skip_special_tokens=True).replace(" ", "")
            assert read == (text.lower() if lowercase else text).replace(" ", "")

    def test_special_tokens_come_first(self, ordinary: Path, kind: str) -> None:
        tokenizer = train_vocabulary([ordinary], kind, 150)
        special = {"wordpiece": ["[PAD]", "[UNK]"], "unigram": ["<pad>", "<unk>"]}[kind] + ["[CLS]", "[SEP]", "[MASK]"]
        assert tokenizer.convert_ids_to_tokens(list(range(5))) == special
        assert sorted(tokenizer.all_special_ids) == list(range(5))
        assert tokenizer.pad_token_id == 0
        assert tokenizer("日")["input_ids"][-2] == tokenizer.unk_token_id == 1

    def test_the_same_text_gives_the_same_vocabulary(self, tmp_path: Path, kind: str) -> None:
        """The trainer alone gives another one each time: its hash tables are seeded anew, in one process too."""
        rng = random.Random(1)
        texts = [[made_up(rng, 50)] for _ in range(40)]
        path = write_text(tmp_path / "text.txt", [*texts, ["letters seen once: qvwxyzäöß2345"]])
        made = {train_vocabulary([path], kind, 200).backend_tokenizer.to_str() for _ in range(3)}
        assert len(made) == 1

    @pytest.mark.parametrize("order", ["xyz", "zxy"])
    def test_letters_that_were_to_go_are_alike(self, order: str) -> None:
        """The trainer gives them the lowest score and a little more for each, in the order of a hash table."""
        lowest = [(letter, -9.0 + 0.0001 * place) for place, letter in enumerate(order)]
        trained = Tokenizer(Unigram([("<unk>", 0.0), ("▁the", -1.00001), ("e", -2.0), *lowest], unk_id=0))
        ordered = [("<unk>", 0.0), ("▁the", -1.0), ("e", -2.0), ("x", -9.0), ("y", -9.0), ("z", -9.0)]
        assert vocabulary._in_order(trained, ["<unk>"]) == ordered

    def test_too_little_text_gives_a_small_vocabulary(
        self, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = write_text(tmp_path / "text.txt", [["a small text, and a small text"]])
        with caplog.at_level(logging.WARNING, "offramp"):
            tokenizer = train_vocabulary([path], kind, 500)
        assert 15 < len(tokenizer) < 60
        assert f"the text has but {len(tokenizer)} words for a vocabulary of 500" in caplog.text
        assert tokenizer.unk_token_id not in tokenizer("small text")["input_ids"]

    @pytest.mark.parametrize(("rare", "learned"), [(100, "bu日"), (30, "")])
    def test_rare_characters_are_not_learned(
        self, tmp_path: Path, kind: str, rare: int, learned: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One in fifty is b, one u (a capital with dots), one Japanese."""
        monkeypatch.setattr(vocabulary, "RARE", rare)
        path = write_text(
            tmp_path / "text.txt", [["Über all the letters, all the letters, all of them 日 letters"] * 9]
        )
        tokenizer = train_vocabulary([path], kind, 100)
        characters = set("".join(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)))
        assert {"e", "t", "l"} <= characters
        assert {"b", "u", "日"} & characters == set(learned)

    def test_unigram_learns_from_an_even_part_of_a_long_text(
        self, ordinary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        size = ordinary.stat().st_size
        other = write_text(tmp_path / "other.txt", [["Zebras in zoos. " * 10]] * (size // 160))
        monkeypatch.setattr(vocabulary, "UNIGRAM_TEXT", size // 5)
        taken: list[str] = []
        some = vocabulary._some

        def watched(paragraphs: Iterable[str], share: float) -> Iterator[str]:
            for paragraph in some(paragraphs, share):
                taken.append(paragraph)
                yield paragraph

        monkeypatch.setattr(vocabulary, "_some", watched)
        train_vocabulary([ordinary, other], "unigram", 150)
        lengths = [sum(len(text) for text in taken if ("Zebras" in text) is of_other) for of_other in (False, True)]
        assert lengths == [pytest.approx(size / 10, abs=200)] * 2

    @pytest.mark.parametrize(
        ("kind_asked", "size", "message"),
        [
            ("bpe", 100, "vocabulary='bpe': use 'wordpiece' or 'unigram'"),
            ("wordpiece", 10, "a vocabulary of 10 words: expected 64 or more"),
        ],
    )
    def test_what_cannot_be_made_is_refused(self, ordinary: Path, kind_asked: str, size: int, message: str) -> None:
        with pytest.raises(OfframpError, match=message):
            train_vocabulary([ordinary], kind_asked, size)

    def test_sentences_end_at_marks(self, ordinary: Path, kind: str) -> None:
        tokenizer = train_vocabulary([ordinary], kind, 150)
        ends = set(tokenizer.convert_ids_to_tokens(sentence_ends(tokenizer)))
        assert {".", "!", "?"} <= {end.removeprefix("▁") for end in ends} | {end[-1] for end in ends}
        assert all(set(end) <= set('▁.!?")') for end in ends)

    def test_marks_go_by_many_names(self) -> None:
        words = [
            ".",
            "##!",
            "?",
            '."',
            ".”",
            "…",
            "▁.",
            "Ġ...",
            ").",
            "。",
            "mr.",
            "a",
            ",",
            '"',
            "##",
            "▁",
            "1.",
            ";",
            ")",
        ]
        tokenizer = BertTokenizer(
            vocab={word: id for id, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
        )
        assert sentence_ends(tokenizer) == list(range(5, 15))
