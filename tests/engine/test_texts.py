"""Texts in, answers out: those of `model.answer`, one at a time, in the order of the texts, whatever is among them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import offramp
from offramp import OfframpError
from offramp.engine import Engine, Prediction, Text
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Policy
from offramp.prediction import predict
from tests.generated import FILLER, WORDS, reviews
from tests.policies.matrix import MATRIX, SAMPLES, Row
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_gated_model

LABELS = ("bad", "good", "so-so")
ROWS = {name: row for name, row in MATRIX.items() if row.task != "span"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MultiExitModel]:
    place = tmp_path_factory.mktemp("models")
    return {
        "classification": offramp.load(model_folder(place / "labels", LABELS)),
        "regression": offramp.load(model_folder(place / "number", ())),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model", LABELS)


def one_at_a_time(model: MultiExitModel, policy: Policy, texts: list[Text]) -> list[tuple[str | float, int]]:
    """What the model answers each text alone: its label or number, and the layer."""
    encoder, found = Engine(model).encoder, []
    for number, text in enumerate(texts):
        [row] = encoder([text]) if isinstance(text, str) else encoder([text[0]], [text[1]])
        answer = model.answer(policy, **encoder.pad([row]), samples=torch.tensor([number]))
        label = LABELS[int(answer.logits.argmax())] if answer.logits.shape[1] > 1 else float(answer.logits)
        found.append((label, int(answer.exit_layer)))
    return found


def check(predictions: list[Prediction], expected: list[tuple[str | float, int]]) -> None:
    assert [prediction.exit_layer for prediction in predictions] == [layer for _, layer in expected]
    for prediction, (label, _) in zip(predictions, expected, strict=True):
        assert prediction.label == (label if isinstance(label, str) else pytest.approx(label, abs=1e-4))


a_text = st.lists(st.sampled_from([*FILLER, "good", "awful", "unheard-of"]), min_size=1, max_size=50).map(" ".join)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_predictions_are_the_answers_one_at_a_time(
    models: dict[str, MultiExitModel], row: Row, data: st.DataObject
) -> None:
    texts: list[Text] = data.draw(st.lists(a_text, max_size=SAMPLES))
    if data.draw(st.booleans()):
        texts = [(text, "the plot") if isinstance(text, str) else text for text in texts]
    model = models[row.task]
    engine = Engine(model, row.policy, batch_size=data.draw(st.integers(1, 5)))
    engine.window = data.draw(st.integers(1, 12))
    check(list(engine.stream(texts)), one_at_a_time(model, row.policy, texts))


def test_many_texts_in_many_windows(models: dict[str, MultiExitModel]) -> None:
    texts: list[Text] = [text for text, _ in reviews(150)]
    policy = MATRIX["entropy"].policy
    expected = one_at_a_time(models["classification"], policy, texts)
    assert len({layer for _, layer in expected}) > 2
    engine = Engine(models["classification"], policy, batch_size=4)
    engine.window = 20
    check(list(engine.stream(texts)), expected)


def test_the_score_is_the_labels_probability(models: dict[str, MultiExitModel]) -> None:
    model = models["classification"]
    encoder = Engine(model).encoder
    with torch.no_grad():
        logits = model(**encoder.pad(encoder(["a good film"]))).exit_logits[1]
    [answer] = predict(model, ["a good film"], "fixed(2)")
    assert answer.score == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)
    assert [number.score for number in predict(models["regression"], ["a good film"], "fixed(2)")] == [None]


def test_reads_ahead_a_little_and_no_more(models: dict[str, MultiExitModel]) -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        while True:  # there is no end to it: a list of it would never be there
            read += 1
            yield "a film"

    engine = Engine(models["classification"], batch_size=4)
    engine.window = 12
    answers = engine.stream(texts())
    assert read == 0
    for answered in range(1, 50):
        next(answers)
        assert answered <= read < answered + 6 * 12  # computed, waiting, being encoded, and just read


def test_texts_before_a_wrong_one_are_answered(models: dict[str, MultiExitModel]) -> None:
    def texts() -> Iterator[str]:
        yield from ["a film", "the plot", "it is"]
        raise OfframpError("rows.csv:5: wrong")

    answers = Engine(models["classification"], batch_size=2).stream(texts())
    assert len([next(answers) for _ in range(3)]) == 3
    with pytest.raises(OfframpError, match=r"rows\.csv:5: wrong"):
        next(answers)


def test_policy(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As asked, or the folder's own, or full depth."""
    assert predict(folder, ["a film"])[0].exit_layer == 5
    assert predict(folder, ["a film"], "fixed(3)")[0].exit_layer == 3
    assert predict(folder, ["a film"], Fixed(4))[0].exit_layer == 4
    (folder / "policy.json").write_text(json.dumps({"policy": "fixed", "layer": 2}))
    assert predict(folder, ["a film"])[0].exit_layer == 2
    assert predict(folder, ["a film"], "fixed(3)")[0].exit_layer == 3
    (folder / "policy.json").write_text(json.dumps({"policy": {"policy": "fixed", "layer": 1}, "score": 0.9}))
    assert predict(folder, ["a film"])[0].exit_layer == 1
    model, tokenizer = offramp.load(folder), Engine(folder).encoder.tokenizer
    model.name_or_path = ""
    monkeypatch.chdir(folder)  # a policy that happens to lie here is nobody's
    assert predict(model, ["a film"], tokenizer=tokenizer)[0].exit_layer == 5


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ("", "policy.json holds no policy"),
        ("[1]", "policy.json holds no policy"),
        ('{"policy": "fixed", "layer"', "policy.json holds no policy"),
        ('{"policy": "entropie", "threshold": 1}', "policy.json holds no policy .unknown policy 'entropie'"),
        ('{"policy": "entropy"}', "policy.json holds no policy .entropy needs"),
        ('{"policy": "entropy", "threshold": "low"}', "policy.json holds no policy"),
        ('{"policy": "fixed", "layer": 9}', "no exit there"),
    ],
)
def test_damaged_policy(folder: Path, damaged: str, message: str) -> None:
    (folder / "policy.json").write_text(damaged)
    with pytest.raises(OfframpError, match=message):
        Engine(folder)


def test_label_names(folder: Path) -> None:
    assert {answer.label for answer in predict(folder, [text for text, _ in reviews(40)], "fixed(1)")} <= set(LABELS)
    stored = predict(folder, ["a film"])[0].label
    given_names = ["x", "y", "z"]
    assert predict(folder, ["a film"], label_names=given_names)[0].label == given_names[LABELS.index(str(stored))]


def test_long_texts_are_cut_as_in_training(folder: Path) -> None:
    long = " ".join(WORDS[5:20] * 20)
    assert Engine(folder).encoder.max_length == 40, "what the backbone takes"
    cut = Engine(folder, max_length=8)
    assert [len(row) for row in cut.encoder([long])] == [8]
    assert list(cut.stream([long])) == list(cut.stream([" ".join(long.split()[:6])]))


def test_wrong_arguments(models: dict[str, MultiExitModel], folder: Path) -> None:
    model = models["classification"]
    with pytest.raises(OfframpError, match=r"write \[text\]"):
        predict(model, "a film")
    with pytest.raises(OfframpError, match="not some of each"):
        predict(model, ["a film", ("a film", "the plot")])
    with pytest.raises(OfframpError, match="batch size must be a whole number, 1 or more, not 0"):
        Engine(model, batch_size=0)
    with pytest.raises(OfframpError, match="device 'abacus'"):
        Engine(model, device="abacus")
    with pytest.raises(OfframpError, match="regression"):
        Engine(models["regression"], "entropy(0.1)")
    with pytest.raises(OfframpError, match="answers questions with spans: use SpanPredictor"):
        Engine(model_folder(folder.parent / "span", num_labels=2, span=True))(["a film"])


def test_gates_skip_and_answer_as_under_masks(tmp_path: Path) -> None:
    """On a CPU what gates switch off is not computed; labels, exits and scores stay."""
    model = tiny_gated_model(layers=5, num_labels=3)
    model.config.id2label = dict(enumerate(LABELS))
    texts = [text for text, _ in reviews(40)]
    engine = Engine(offramp.load(write(model, tmp_path / "gated", None)), "entropy(0.6)", batch_size=8, device="cpu")
    found = list(engine.stream(texts))
    assert engine.model.skipping is not None
    engine.model.skipping = None
    for one, other in zip(found, engine.stream(texts), strict=True):
        assert (one.label, one.exit_layer) == (other.label, other.exit_layer)
        assert one.score == pytest.approx(other.score, abs=1e-4)
    assert len({one.exit_layer for one in found}) > 1


def test_a_text_that_cannot_be_one_fails_alone(models: dict[str, MultiExitModel]) -> None:
    engine = Engine(models["classification"], "fixed(2)", device="cpu")
    [expected] = engine(["a good film"])
    for poison, message in {
        float("nan"): "expected a text, or a pair of texts, not nan",
        None: "expected a text, or a pair of texts, not None",
        ("a film", 3): "expected a text, or a pair of texts, not 3",
        "half a \ud83d": "half a character",
        " \n": "the text is empty",
        ("a film", ""): "the text is empty",
    }.items():
        first, wrong, last = engine(["a good film", poison, "a good film"])
        assert message in str(wrong.error)
        assert (wrong.label, wrong.score, wrong.exit_layer, wrong.scores) == (None, None, None, ())
        assert {(one.label, one.exit_layer) for one in (first, last)} == {(expected.label, expected.exit_layer)}


def test_a_tokenizer_with_more_words_than_the_model(models: dict[str, MultiExitModel]) -> None:
    engine = Engine(models["classification"], "fixed(2)", device="cpu")
    engine.encoder.tokenizer.add_tokens([f"zyzzyva{number}" for number in range(60)])
    good, wrong = engine(["a film", "a zyzzyva59"])
    assert good.error is None
    assert "outside the vocabulary" in str(wrong.error)
