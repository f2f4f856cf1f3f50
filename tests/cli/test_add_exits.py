"""`offramp add-exits`, as a user types it: the classifier stays what it is, and gets exits."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

import offramp
from offramp.adding_exits import run as adding
from offramp.training import pooled_states
from tests.command_line import Result
from tests.fine_tuned import NAMES, answer, fine_tuned
from tests.generated import reviews
from tests.tiny import tiny_backbone

Run = Callable[..., Result]
FAMILIES = ("bert", "roberta", "albert")
QUICK = ("--epochs", "4", "--quiet")
NAMED = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def bert(home: Path) -> Path:
    return fine_tuned(home / "bert", **NAMED)


@pytest.fixture(scope="module")
def data(home: Path) -> Path:
    return write(home / "reviews.csv", noisy(700))


def noisy(rows: int, seed: int = 0, share: float = 0.06) -> list[tuple[str, str]]:
    """Reviews of which some are mislabelled, as they are: nobody is always right."""
    draw = random.Random(seed)
    other = dict(zip(NAMES, NAMES[::-1], strict=True))
    unique = dict(reviews(rows, seed))  # a text is in one part only
    return [(text, other[verdict] if draw.random() < share else verdict) for text, verdict in unique.items()]


def write(path: Path, rows: Sequence[tuple[Any, ...]], columns: Sequence[str] = ("review", "verdict")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def arguments(model: Path, data: Path, out: Path) -> tuple[str | Path, ...]:
    return ("add-exits", model, "--data", data, "--text", "review", "--label", "verdict", "--out", out)


def plain_logits(model: Path, texts: Sequence[str]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """What transformers says, and to which batch."""
    classifier = AutoModelForSequenceClassification.from_pretrained(model).eval()
    batch = dict(AutoTokenizer.from_pretrained(model)(list(texts), padding=True, return_tensors="pt"))
    if classifier.config.type_vocab_size == 1:
        del batch["token_type_ids"]
    with torch.no_grad():
        return classifier(**batch).logits, batch


def same_weights(classifier: Path, added: Path) -> bool:
    """Every tensor of the classifier is in the folder with exits, as it was."""
    ours = list(load_file(added / "model.safetensors").values())
    theirs = load_file(classifier / "model.safetensors")
    return all(any(torch.equal(tensor, one) for one in ours if one.shape == tensor.shape) for tensor in theirs.values())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exits are trained and scored; no policy is looked for, and nothing is drawn."""
    monkeypatch.setattr(adding, "certified", lambda *_, **__: (None, "not looked for"))
    monkeypatch.setattr(adding, "write_results", lambda *_: [])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("fast")
def test_the_classifier_stays_as_it_is(run: Run, data: Path, tmp_path: Path, family: str) -> None:
    """Logits and weights to the bit, and labels on the command line."""
    model, out = fine_tuned(tmp_path / "classifier", family, **NAMED), tmp_path / "added"
    before = (model / "model.safetensors").read_bytes()
    done = run(*arguments(model, data, out), *QUICK)
    assert done.status == 0, done.err
    assert (model / "model.safetensors").read_bytes() == before
    assert same_weights(model, out)
    texts = [text for text, _ in reviews(50, seed=5)]
    expected, batch = plain_logits(model, texts)
    opened = offramp.load(out)
    with torch.no_grad():
        assert torch.equal(opened(**batch).logits, expected)
        assert torch.equal(AutoModelForSequenceClassification.from_pretrained(out)(**batch).logits, expected)
    assert opened.exits.layers == (1, 2, 3, 4)
    asked = write(tmp_path / "new.csv", [(text,) for text in texts], ["review"])
    answered = run("predict", out, asked, "--policy", "fixed(4)", "--out", tmp_path / "answers.jsonl")
    assert answered.status == 0, answered.err
    said = [json.loads(line)["label"] for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert said == [NAMES[number] for number in expected.argmax(-1)]


def test_exits_are_certified(run: Run, bert: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs" / "with exits"
    done = run(*arguments(bert, data, out), "--max-loss", "0.05", *QUICK)
    assert done.status == 0, done.err
    assert f"{bert}: exits after layers 1 to 3 of 4, trained on" in done.out
    assert "Certified: at most 5 % of accuracy is lost, with 95 % confidence" in " ".join(done.out.split())
    assert f"serve    offramp serve '{out}'" in done.out
    assert {"policy.json", "README.md", "training.json"} < {path.name for path in out.iterdir()}
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert f"report   {out}/evaluation/dev/report.html" in done.out
    assert (out / "evaluation" / "dev" / "report.html").is_file()
    results = json.loads((out / "evaluation" / "dev" / "results.json").read_text())
    assert results["model"] == str(out)
    assert results["point"]["mean_layers"] < 4
    table = [line.split()[:2] for line in done.out.splitlines() if line.strip()[:1].isdigit()]
    assert table == [[str(one["layer"]), f"{100 * one['scores']['accuracy']:.1f}"] for one in results["exits"]]
    again = run("calibrate", out, "--max-loss", "0.06")
    assert "used the stored trace" in again.err


def added(model: Path, out: Path, data: Path, **options: Any) -> Any:
    columns = {"text": "review", "label": "verdict"}
    return offramp.add_exits(model, out, data=data, epochs=2, quiet=True, **{**columns, **options})


def exits_of(folder: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith("exits.")}


def same(one: Path, other: Path) -> bool:
    ours, theirs = exits_of(one), exits_of(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.usefixtures("fast")
def test_the_seed_decides_and_nothing_else(
    bert: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what was drawn before, nor whether the states fit into memory."""
    added(bert, tmp_path / "a", data)
    torch.manual_seed(77)
    monkeypatch.setattr(pooled_states, "IN_MEMORY", 0)
    added(bert, tmp_path / "b", data)
    added(bert, tmp_path / "c", data, seed=1)
    assert same(tmp_path / "a", tmp_path / "b")
    assert not same(tmp_path / "a", tmp_path / "c")
    folders = [{path.name for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert folders[0] == folders[1], "nothing is left of the states"


@pytest.mark.usefixtures("fast")
def test_held_out_rows_are_not_trained_on(bert: Path, data: Path, tmp_path: Path) -> None:
    """Other texts in their place make no difference; labels do not either, to any row: exits learn from the model."""
    one = added(bert, tmp_path / "a", data)
    held_out = set(
        offramp.task(**json.loads((tmp_path / "a" / "training.json").read_text())["task"]).split("dev").texts
    )
    rows = [(row["review"], row["verdict"]) for row in csv.DictReader(data.open())]
    assert one.results.rows == len(held_out) == round(len(rows) / 2)
    fresh = (f"the cast {text}" if text in held_out else text for text, _ in rows)
    other = write(tmp_path / "other.csv", [(text, label) for text, (_, label) in zip(fresh, rows, strict=True)])
    added(bert, tmp_path / "b", other)
    assert same(tmp_path / "a", tmp_path / "b")
    dev = write(tmp_path / "dev.csv", noisy(100, seed=4))
    two = added(bert, tmp_path / "c", data, dev=dev)
    assert (two.trained_on, two.results.rows) == (len(rows), len(noisy(100, seed=4)))


@pytest.mark.parametrize("spelling", ["{}", "{:u}", "number", "--labels"])
@pytest.mark.usefixtures("fast")
def test_labels_are_matched(bert: Path, data: Path, tmp_path: Path, spelling: str) -> None:
    """By name in any case, by number, or as the user says: the score is the same."""
    ways = {
        "{}": str,
        "{:u}": str.upper,
        "number": lambda name: str(NAMES.index(name)),
        "--labels": lambda name: f"-{name}",
    }
    rows = [(row["review"], ways[spelling](row["verdict"])) for row in csv.DictReader(data.open())]
    file = write(tmp_path / "reviews.csv", rows)
    labels = ["-bad", "-good"] if spelling == "--labels" else None
    found = added(bert, tmp_path / "out", file, labels=labels, dev_share=0.4)
    assert found.results.full_depth.scores["accuracy"] > 0.9
    assert offramp.load(tmp_path / "out").config.id2label == dict(enumerate(NAMES))
    again = offramp.evaluate(tmp_path / "out", fresh=True)
    assert again.label_names == NAMES
    assert again.scores()[-1].scores == found.results.full_depth.scores


def test_rows_without_labels(run: Run, bert: Path, tmp_path: Path) -> None:
    """What is promised is then how often the classifier's answer is given."""
    file = write(tmp_path / "texts.csv", [(text,) for text, _ in noisy(500)], ["review"])
    own = ("add-exits", bert, "--data", file, "--text", "review", "--out", tmp_path / "out", "--epochs", "6", "--json")
    refused = run(*own)
    assert refused.status == 2
    assert "no column is named like a label" in refused.err
    assert "--consistency" in refused.err
    done = run(*own, "--consistency", "--max-loss", "0.05")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["promise"] == "at most 5 % of the answers differ from full depth's, with 95 % confidence"
    assert found["full_depth"] == {}
    assert found["calibrated"]["mean_layers"] < 4
    assert [exit["agreement"] for exit in found["exits"]][-1] == 1
    assert offramp.evaluate(tmp_path / "out").labelled is False


@pytest.mark.parametrize("family", FAMILIES)
def test_numbers(run: Run, tmp_path: Path, family: str) -> None:
    model = fine_tuned(tmp_path / "model", family, labels=1)
    file = write(tmp_path / "numbers.csv", [(text, answer(text, "", 1)) for text, _ in noisy(300)])
    refused = run(*arguments(model, file, tmp_path / "out"))
    assert (refused.status, "--tolerance 0.1" in refused.err) == (2, True)
    done = run(*arguments(model, file, tmp_path / "out"), "--tolerance", "1.5", "--max-loss", "0.2", *QUICK)
    assert done.status == 0, done.err
    assert "Certified: at most 20 % of the answers differ from full depth's" in " ".join(done.out.split())
    expected, batch = plain_logits(model, [text for text, _ in reviews(40, seed=5)])
    with torch.no_grad():
        assert torch.equal(offramp.load(tmp_path / "out")(**batch).logits, expected)


@pytest.mark.usefixtures("fast")
def test_numbers_need_no_labels(run: Run, tmp_path: Path, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is promised is how far they are from the classifier's: a column of words is no obstacle."""
    model = fine_tuned(tmp_path / "model", labels=1)
    done = run(*arguments(model, data, tmp_path / "out"), "--tolerance", "1.5", *QUICK)
    assert done.status == 0, done.err
    assert "'verdict' holds no numbers: the rows are read without labels" in caplog.text
    assert offramp.evaluate(tmp_path / "out").labelled is False


def test_too_few_rows(run: Run, bert: Path, tmp_path: Path) -> None:
    """Said plainly, with what would be enough; the exits are there, and answers are the classifier's."""
    file, out = write(tmp_path / "few.csv", noisy(120, share=0.1)), tmp_path / "out"
    done = run(*arguments(bert, file, out), *QUICK)
    assert done.status == 0, done.err
    said = " ".join(done.out.split())
    assert "Nothing is certified: 60 rows cannot support this promise" in said
    assert "rows like these would be enough" in said
    assert "until a policy is calibrated, all answers are full depth's" in said
    assert f"offramp calibrate {out} --data MORE.csv --max-loss 0.02" in said
    assert not (out / "policy.json").exists()


def test_three_labels_by_number(bert: Path, tmp_path: Path, fast: None) -> None:
    """Also where the model has names: its numbers are its own. Another order is noticed, and can be said."""
    names = {0: "none", 1: "some", 2: "many"}
    model = fine_tuned(tmp_path / "model", labels=3, id2label=names, label2id={n: i for i, n in names.items()})
    rows = [(text, answer(text, "", 3)) for text, _ in noisy(400)]
    found = added(model, tmp_path / "a", write(tmp_path / "rows.csv", rows))
    assert found.results.full_depth.scores["accuracy"] > 0.7
    assert offramp.load(tmp_path / "a").config.id2label == names
    moved = write(tmp_path / "moved.csv", [(text, (number + 1) % 3) for text, number in rows])
    with pytest.raises(offramp.OfframpError, match=r"0 is none, 1 is some, 2 is many.*--labels 1,2,0$"):
        added(model, tmp_path / "b", moved)
    assert not (tmp_path / "b").exists()
    again = added(model, tmp_path / "b", moved, labels=["1", "2", "0"])
    assert again.results.full_depth.scores["accuracy"] > 0.7


def test_a_model_without_names_takes_those_it_is_given(tmp_path: Path, data: Path, fast: None) -> None:
    model = fine_tuned(tmp_path / "model")
    with pytest.raises(offramp.OfframpError, match=r"label 'bad' is none of the model's \(LABEL_0, LABEL_1\)"):
        added(model, tmp_path / "out", data)
    found = added(model, tmp_path / "out", data, labels=NAMES)
    assert found.results.full_depth.scores["accuracy"] > 0.9
    assert offramp.load(tmp_path / "out").config.id2label == dict(enumerate(NAMES))


@pytest.mark.usefixtures("fast")
def test_stopped(run: Run, bert: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left, and what was there before is."""
    out = tmp_path / "out"

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adding, "train_heads", stopped)
        done = run(*arguments(bert, data, out), *QUICK)
        assert (done.status, done.err.splitlines()[-1]) == (130, "stopped: nothing was written")
    assert list(tmp_path.iterdir()) == []
    added(bert, out, data)
    before = exits_of(out)
    refused = run(*arguments(bert, data, out))
    assert (refused.status, "is not empty" in refused.err) == (2, True)
    with monkeypatch.context() as patch:
        patch.setattr(adding, "write_model", stopped)
        assert run(*arguments(bert, data, out), *QUICK, "--seed", "3", "--overwrite").status == 130
    assert all(torch.equal(before[name], tensor) for name, tensor in exits_of(out).items())
    assert run(*arguments(bert, data, out), *QUICK, "--seed", "3", "--overwrite").status == 0
    assert not all(torch.equal(before[name], tensor) for name, tensor in exits_of(out).items())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.fixture(scope="module")
def others(home: Path, bert: Path) -> Path:
    """Models that are no classifiers of texts."""
    config = tiny_backbone("bert")
    AutoModelForTokenClassification.from_config(config).save_pretrained(home / "tokens")
    AutoModelForMaskedLM.from_config(config).save_pretrained(home / "words")
    for name, kind in (("several", "multi_label_classification"), ("numbers", "regression")):
        config = tiny_backbone("bert")
        config.update({"problem_type": kind, "num_labels": 3})
        AutoModelForSequenceClassification.from_config(config).save_pretrained(home / name)
    AutoModelForSequenceClassification.from_config(tiny_backbone("bert", 1)).save_pretrained(home / "shallow")
    offramp.convert(bert, home / "converted", overwrite=True)
    shutil.copytree(home / "converted", home / "plain")
    (home / "plain" / "training.json").write_text('{"recipe": {"name": "plain"}}')
    shutil.copytree(bert, home / "poolerless")
    tensors = load_file(bert / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    save_file(kept, home / "poolerless" / "model.safetensors")
    (home / "empty.csv").write_text("")
    (home / "no-rows.csv").write_text("review,verdict\n")
    return home


REFUSED: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "tokens": ("tokens", "reviews.csv", (), "BertForTokenClassification, which labels each token"),
    "no classifier": ("words", "reviews.csv", (), "has no classifier (it is a BertForMaskedLM)"),
    "several labels": ("several", "reviews.csv", (), "several labels for one text"),
    "several numbers": ("numbers", "reviews.csv", (), "answers with 3 numbers"),
    "no pooler": ("poolerless", "reviews.csv", (), "lacks the pooler below its classifier"),
    "one layer": ("shallow", "reviews.csv", (), "has one layer"),
    "exits": ("converted", "reviews.csv", (), "has exits already: offramp calibrate"),
    "plain": ("plain", "reviews.csv", (), "plain --recipe frozen … teaches the others"),
    "wrong path": ("no/such/model", "reviews.csv", (), "there is no folder"),
    "no file": ("bert", "review.csv", (), "did you mean"),
    "empty": ("bert", "empty.csv", (), "empty.csv"),
    "no rows": ("bert", "no-rows.csv", (), "holds no rows"),
    "other labels": ("bert", "reviews.csv", ("--labels", "bad"), "expected 2, one for each of bad, good"),
    "not of --labels": ("bert", "reviews.csv", ("--labels", "a,b"), "'bad' is none of --labels a,b"),
    "tolerance": ("bert", "reviews.csv", ("--tolerance", "0.1"), "the model answers with labels"),
    "macro f1": ("bert", "reviews.csv", ("--metric", "macro_f1"), "macro_f1 cannot be promised"),
    "no loss": ("bert", "reviews.csv", ("--max-loss", "0"), "can never be shown to lose nothing"),
    "layers": ("bert", "reviews.csv", ("--exit-layers", "1,x"), "write layers"),
    "no layer below": ("bert", "reviews.csv", ("--exit-layers", "4"), "its own classifier; name some below, 1 to 3"),
    "deep": ("bert", "reviews.csv", ("--exit-layers", "9"), "more exits than layers"),
    "long": ("bert", "reviews.csv", ("--max-length", "999"), "the model takes 8 to 40 tokens"),
    "epochs": ("bert", "reviews.csv", ("--epochs", "0"), "epochs must be more than 0"),
    "itself": ("bert", "reviews.csv", ("--overwrite", "--out", "bert"), "is the classifier itself"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(
    run: Run, others: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """In one line, and nothing is written."""
    model, file, options, message = REFUSED[case]
    monkeypatch.chdir(others)
    before = sorted(others.rglob("*"))
    done = run(*arguments(Path(model), Path(file), tmp_path / "out"), *options)
    assert done.status == 2
    assert message in done.err
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert sorted(others.rglob("*")) == before
