"""A corpus as tokens: every document is there once, in order, and those held out are nowhere else."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizer

from offramp.errors import OfframpError
from offramp.training.pretraining import token_store
from offramp.training.pretraining.held_out import HELD_OUT, LEFT_OUT, TRAIN, drawn, split
from offramp.training.pretraining.text_files import documents
from offramp.training.pretraining.token_store import open_store, tokenise
from offramp.training.pretraining.vocabulary import train_vocabulary
from tests.training.pretraining.written import made_up, write_packed, write_text


class TestHeldOut:
    @given(
        st.lists(st.integers(1, 10**6), min_size=2, max_size=60),
        st.floats(0.001, 0.49),
        st.integers(0, 2**32 - 1),
    )
    def test_as_much_as_was_asked_for(self, sizes: list[int], share: float, seed: int) -> None:
        counts = np.array(sizes, np.uint64)
        chosen = drawn(counts, share, [seed])
        taken, wanted = counts[chosen].sum(), share * counts.sum()
        assert 1 <= chosen.sum() < len(sizes)
        assert taken <= max(2 * wanted, min(sizes))
        if taken < wanted and chosen.sum() < len(sizes) - 1:  # then nothing more would have fitted
            assert (taken + counts[~chosen] > 2 * wanted).all()
        assert (drawn(counts, share, [seed]) == chosen).all()

    def test_every_document_is_drawn_by_some_seed(self) -> None:
        sizes = np.full(10, 7, np.uint64)
        assert {int(drawn(sizes, 0.1, [seed]).argmax()) for seed in range(200)} == set(range(10))

    def test_a_file_of_one_document_is_for_training(self, tmp_path: Path) -> None:
        one, two = write_text(tmp_path / "one.txt", [["a"]]), write_text(tmp_path / "two.txt", [["b"], ["c"]])
        parts = split([one, two], 0.4, [[0], [0]])
        assert parts[0].tolist() == [TRAIN]
        assert sorted(parts[1].tolist()) == [TRAIN, HELD_OUT]
        assert [each.tolist() for each in split([one, two], 0, [[0], [0]])] == [[TRAIN], [TRAIN, TRAIN]]
        with pytest.raises(OfframpError, match=r"one.txt: nothing can be held out where no file has two documents"):
            split([one], 0.4, [[0]])

    def test_more_than_was_asked_for_is_said(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        split([write_text(tmp_path / "two.txt", [["12345"], ["1234567890"]])], 0.01, [[0]])
        assert "two.txt: 0.33 of its text is held out, not 0.01" in caplog.text

    def test_the_text_of_a_held_out_document_is_nowhere_else(self, tmp_path: Path) -> None:
        texts = [[f"text {number}"] for number in range(20)]
        files = [write_text(tmp_path / name, texts[::step] * 2) for name, step in (("a.txt", 1), ("b.txt", -1))]
        parts = split(files, 0.1, [[1], [2]])
        fates: dict[int, set[str]] = {TRAIN: set(), HELD_OUT: set(), LEFT_OUT: set()}
        for file, of_file in zip(files, parts, strict=True):
            for part, paragraphs in zip(of_file, documents(file), strict=True):
                fates[int(part)].add(paragraphs[0])
        assert fates[HELD_OUT]
        assert fates[LEFT_OUT] == fates[HELD_OUT]
        assert not fates[TRAIN] & fates[HELD_OUT]
        assert len(fates[TRAIN] | fates[HELD_OUT]) == 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of documents that all differ."""
    folder, rng = tmp_path_factory.mktemp("corpus"), random.Random(2)
    texts = [[made_up(rng, rng.randint(1, 9)) for _ in range(rng.randint(1, 4))] for _ in range(90)]
    return [write_text(folder / "a.txt", texts[:60]), write_packed(lzma.open)(folder / "b.txt.xz", texts[60:])]


@pytest.fixture(scope="module")
def tokenizer(corpus: list[Path]) -> Any:
    return train_vocabulary(corpus, "wordpiece", 150)


def as_documents(ids: np.ndarray, separator: int) -> list[list[int]]:
    ends = (np.flatnonzero(ids == separator) + 1).tolist()
    assert ends[-1] == len(ids)
    return [ids[start:end].tolist() for start, end in zip([0, *ends], ends, strict=False)]


def expected(files: list[Path], tokenizer: Any) -> list[list[int]]:
    encode = tokenizer.encode
    return [
        [*(id for text in paragraphs for id in encode(text, add_special_tokens=False)), tokenizer.sep_token_id]
        for file in files
        for paragraphs in documents(file)
    ]


class TestTokenStore:
    @pytest.mark.parametrize("batch", [1, 100, 2**20])
    def test_every_document_is_there_once_and_in_order(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, batch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(token_store, "BATCH", batch)
        store = tokenise(corpus, tokenizer, tmp_path / "tokens", held_out=0.1)
        assert store.train.dtype == store.held_out.dtype == np.uint16
        train, apart = (as_documents(ids, tokenizer.sep_token_id) for ids in (store.train, store.held_out))
        whole = expected(corpus, tokenizer)
        assert [document for document in whole if document in train] == train
        assert [document for document in whole if document in apart] == apart
        assert len(train) + len(apart) == len(whole)
        assert not [document for document in apart if document in train]
        assert 0.05 < len(store.held_out) / (len(store.train) + len(store.held_out)) < 0.2

    def test_what_it_was_made_from_is_written_down(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        store = tokenise(corpus, tokenizer, tmp_path / "tokens", held_out=0.1, seed=3)
        about = json.loads((tmp_path / "tokens" / "tokens.json").read_text())
        assert about == open_store(tmp_path / "tokens").made_from == store.made_from
        assert [file["name"] for file in about["files"]] == ["a.txt", "b.txt.xz"]
        assert [file["size"] for file in about["files"]] == [file.stat().st_size for file in corpus]
        assert [sum(file["documents"].values()) for file in about["files"]] == [60, 30]
        assert all(file["documents"]["held_out"] for file in about["files"])
        for part, ids in (("train", store.train), ("held_out", store.held_out)):
            assert sum(file["tokens"][part] for file in about["files"]) == about["tokens"][part] == len(ids)
            assert sum(file["documents"][part] for file in about["files"]) == (ids == tokenizer.sep_token_id).sum()
        assert (about["held_out"], about["seed"], about["limit"], about["dtype"]) == (0.1, 3, None, "uint16")

    def test_a_file_is_split_alike_in_any_company(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        both = tokenise(corpus, tokenizer, tmp_path / "both", held_out=0.1)
        alone = tokenise(corpus[1:], tokenizer, tmp_path / "alone", held_out=0.1)
        assert both.held_out[-len(alone.held_out) :].tolist() == alone.held_out.tolist()
        other = tokenise(corpus[1:], tokenizer, tmp_path / "other", held_out=0.1, seed=1)
        assert other.held_out.tolist() != alone.held_out.tolist()

    def test_a_limit_takes_the_first_documents(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        store = tokenise(corpus, tokenizer, tmp_path / "tokens", held_out=0, limit=7)
        whole = expected(corpus, tokenizer)
        assert as_documents(store.train, tokenizer.sep_token_id) == whole[:7] + whole[60:67]
        assert store.held_out.shape == (0,)

    def test_text_is_text(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        """Names of special tokens in a text, and a tokenizer that was told to cut and pad, change nothing."""
        other = AutoTokenizer.from_pretrained(saved(tokenizer, tmp_path / "vocabulary"))
        other.backend_tokenizer.enable_truncation(2)
        other.backend_tokenizer.enable_padding(length=99)
        path = write_text(tmp_path / "a.txt", [["abcd [SEP] efgh [MASK] abcd efgh"]])
        ids = tokenise([path], other, tmp_path / "tokens", held_out=0).train.tolist()
        assert ids.count(tokenizer.sep_token_id) == 1
        assert ids[-1] == tokenizer.sep_token_id
        assert tokenizer.mask_token_id not in ids
        assert len(ids) > 6
        assert other.backend_tokenizer.truncation["max_length"] == 2, "the tokenizer itself is as it was"

    def test_large_vocabularies_need_larger_numbers(self, tmp_path: Path, corpus: list[Path]) -> None:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(2**16)), "end"]
        large = BertTokenizer(vocab={word: id for id, word in enumerate(words)})
        path = write_text(tmp_path / "a.txt", [["end w1"]])
        store = tokenise([path], large, tmp_path / "tokens", held_out=0)
        assert store.train.dtype == np.uint32
        assert store.train.tolist() == [2**16 + 5, 6, 3]

    def test_what_is_there_already_is_opened(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = tokenise(corpus, tokenizer, tmp_path / "tokens")
        again = AutoTokenizer.from_pretrained(saved(tokenizer, tmp_path / "vocabulary"))
        monkeypatch.setattr(token_store, "split", None)  # nothing is read again
        second = tokenise(corpus, again, tmp_path / "tokens")
        assert second.train.tolist() == first.train.tolist()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"files": slice(1)}, "of other files"),
            ({"vocabulary": 100}, "of another vocabulary"),
            ({"held_out": 0.2}, r"with held_out 0.1"),
            ({"seed": 1}, "with seed 0"),
            ({"limit": 5}, "with limit None"),
        ],
        ids=str,
    )
    def test_what_was_made_from_others_is_refused(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, change: dict[str, Any], message: str
    ) -> None:
        store = tokenise(corpus, tokenizer, tmp_path / "tokens", held_out=0.1)
        files = corpus[change.pop("files", slice(2))]
        size = change.pop("vocabulary", None)
        other = train_vocabulary(corpus, "wordpiece", size) if size else tokenizer
        with pytest.raises(OfframpError, match=rf"tokens holds tokens {message}: remove it, or name another folder"):
            tokenise(files, other, tmp_path / "tokens", **{"held_out": 0.1, **change})
        assert open_store(tmp_path / "tokens").train.tolist() == store.train.tolist()

    def test_a_changed_file_is_another_file(self, tmp_path: Path, tokenizer: Any) -> None:
        path = write_text(tmp_path / "a.txt", [["abcd"], ["efgh"]])
        tokenise([path], tokenizer, tmp_path / "tokens")
        write_text(path, [["abcd"], ["efgi"]])
        with pytest.raises(OfframpError, match="of other files"):
            tokenise([path], tokenizer, tmp_path / "tokens")

    def test_a_run_that_was_interrupted_leaves_nothing(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def stop(*_: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(token_store, "write_json", stop)
            with pytest.raises(KeyboardInterrupt):
                tokenise(corpus, tokenizer, tmp_path / "tokens")
        assert not list(tmp_path.iterdir())
        assert len(tokenise(corpus, tokenizer, tmp_path / "tokens").train)

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("train.bin", b"12345678", r"train.bin is cut short, or of another run: expected \d+ tokens"),
            ("held_out.bin", None, r"holds no tokens \(.*held_out.bin: No such file"),
            ("tokens.json", None, r"holds no tokens \(.*tokens.json: No such file"),
            ("tokens.json", b"{}", r"tokens.json is not as it was written \('dtype'\): remove the folder"),
            ("tokens.json", b"{", "tokens.json is not as it was written"),
        ],
    )
    def test_damage_is_found(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, name: str, content: bytes | None, message: str
    ) -> None:
        tokenise(corpus, tokenizer, tmp_path)
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
        with pytest.raises(OfframpError, match=message):
            open_store(tmp_path)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"held_out": 0.5}, "held out 0.5: expected a share"),
            ({"held_out": -0.1}, "held out -0.1: expected a share"),
            ({"limit": 0}, "limit 0: expected 1 document"),
        ],
    )
    def test_senseless_numbers_are_refused(
        self, tmp_path: Path, corpus: list[Path], tokenizer: Any, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(OfframpError, match=message):
            tokenise(corpus, tokenizer, tmp_path / "tokens", **options)

    def test_other_things_are_not_written_over(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        (tmp_path / "thesis.txt").write_text("mine")
        for place in (tmp_path, tmp_path / "thesis.txt"):
            with pytest.raises(OfframpError, match="is there and holds no tokens: name another folder"):
                tokenise(corpus, tokenizer, place)
        assert (tmp_path / "thesis.txt").read_text() == "mine"

    def test_a_tokenizer_must_have_what_is_needed(self, tmp_path: Path, corpus: list[Path], tokenizer: Any) -> None:
        bare = AutoTokenizer.from_pretrained(saved(tokenizer, tmp_path / "vocabulary"))
        bare.sep_token = None
        with pytest.raises(OfframpError, match=r"expected a fast tokenizer .* that has a separator"):
            tokenise(corpus, bare, tmp_path / "tokens")


def saved(tokenizer: Any, folder: Path) -> Path:
    tokenizer.save_pretrained(folder)
    return folder
