"""`offramp convert`, as a user types it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import offramp
from offramp.cli import main
from tests.tiny import tiny_batch

GOLDEN = Path(__file__).parents[1] / "golden" / "data"


@dataclass(frozen=True)
class Result:
    status: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command line, from its arguments to its exit status, in this process."""

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr("sys.argv", ["offramp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return Result(int(stopped.value.code or 0), printed.out, printed.err)

    return run


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


@pytest.mark.parametrize("name", ["deebert_roberta", "romebert_gr", "elasticbert_regression", "elbert_c3"])
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
    assert (
        refused.err.strip() == f"error: {tmp_path} exists and is not empty: name another folder, or allow overwriting"
    )
    assert (tmp_path / "precious").read_text() == "keep me"
    offramp.convert(GOLDEN / "deebert_bert", tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_failed_conversion_leaves_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    failed = run("convert", GOLDEN / "ebert_bert_cls", tmp_path / "new")
    assert failed.status == 2
    assert failed.err.startswith("error: ")
    assert "Traceback" not in failed.err
    assert not list(tmp_path.iterdir())


def test_help_shows_examples(run: Callable[..., Result]) -> None:
    done = run("convert", "--help")
    assert done.status == 0
    assert "offramp convert fnlp/elasticbert-base" in done.out
    assert "convert" in run("--help").out
