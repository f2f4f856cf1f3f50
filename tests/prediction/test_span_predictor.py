"""Answers to questions are those of `model.answer` on each window alone, merged; and reading ahead is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import offramp
from offramp import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Patience, Policy
from offramp.prediction import SpanPredictor, predict
from offramp.tasks.squad import Answer, Question, Questions, find_answers, window_encoder
from tests.evaluation.made_questions import made_questions
from tests.generated import FILLER, GOOD
from tests.policies.matrix import MATRIX, Row
from tests.prediction.models import model_folder

ROWS = {name: row for name, row in MATRIX.items() if row.task == "span"}
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "span", span=True)


@pytest.fixture(scope="module")
def model(folder: Path) -> MultiExitModel:
    return offramp.load(folder)


def one_at_a_time(
    model: MultiExitModel, policy: Policy, questions: Questions
) -> tuple[list[Answer], list[tuple[int, ...]]]:
    """Each window in a batch of its own."""
    encoder = window_encoder(model)
    windows = encoder(questions)
    answers = [model.answer(policy, **encoder.pad([window.row]), samples=torch.tensor([0])) for window in windows]
    found = find_answers(questions, windows, [answer.logits[0].numpy() for answer in answers])
    layers: list[list[int]] = [[] for _ in questions.questions]
    for window, answer in zip(windows, answers, strict=True):
        layers[window.question].append(int(answer.exit_layer))
    return found, [tuple(one) for one in layers]


words = st.lists(st.sampled_from([*FILLER, *GOOD, "unheard-of"]), min_size=1, max_size=70).map(" ".join)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_predictions_are_the_answers_one_at_a_time(model: MultiExitModel, row: Row, data: st.DataObject) -> None:
    pairs: list[Pair] = data.draw(st.lists(st.tuples(words, words), max_size=5))
    may_be_empty = data.draw(st.booleans())
    predictor = SpanPredictor(
        model,
        row.policy,
        batch_size=data.draw(st.integers(1, 5)),
        null_threshold=0.0 if may_be_empty else None,
    )
    predictor.at_a_time = data.draw(st.integers(1, 3))
    asked = [Question(str(number), *pair, (), (), False) for number, pair in enumerate(pairs)]
    answers, layers = one_at_a_time(model, row.policy, Questions(asked, may_be_empty, "", labelled=False))
    found = list(predictor.stream(pairs))
    assert [one.exit_layers for one in found] == layers
    for one, answer in zip(found, answers, strict=True):
        assert (one.text, one.answer.id) == (answer.text, answer.id)
        assert one.answer.null_odds == pytest.approx(answer.null_odds, abs=1e-3)
        probability = {candidate.text: candidate.probability for candidate in answer.nbest}[one.text]
        assert one.score == pytest.approx(probability, abs=1e-4)


def test_in_python(model: MultiExitModel, folder: Path, tmp_path: Path) -> None:
    questions = made_questions(tmp_path, questions=20, words=90)
    pairs = [(question.question, question.context) for question in questions.questions]
    found = predict(folder, pairs, "patience(1)")
    assert len({layer for one in found for layer in one.exit_layers}) > 1
    assert max(len(one.exit_layers) for one in found) > 1, "several windows"
    assert all(one.text and one.text in context for one, (_, context) in zip(found, pairs, strict=True))
    assert found[0].exit_layer == sum(found[0].exit_layers) / len(found[0].exit_layers)
    empty = predict(model, pairs, "patience(1)", null_threshold=-1e6)
    assert {one.text for one in empty} == {""}
    short = predict(model, pairs, max_answer_tokens=1, n_best=3)
    assert all(len(one.text.split()) == 1 and len(one.answer.nbest) <= 3 for one in short)
    answers, _ = one_at_a_time(model, Patience(1), questions)
    of_file = list(SpanPredictor(model, "patience(1)").stream_questions(questions))
    assert [one.text for one in of_file] == [answer.text for answer in answers]


def test_an_empty_context_has_no_answer(model: MultiExitModel) -> None:
    [found] = predict(model, [("the film", " ")])
    assert (found.text, found.score, found.exit_layers) == ("", 1.0, (5,))


def test_reading_ahead_is_bounded(model: MultiExitModel) -> None:
    read: list[int] = []

    def pairs() -> Iterator[Pair]:
        for number in range(50):
            read.append(number)
            yield "the film", "a good film"

    predictor = SpanPredictor(model, batch_size=2)
    predictor.at_a_time, predictor.engine.window = 2, 4
    answers = predictor.stream(pairs())
    next(answers)
    assert len(read) <= 30  # computed, waiting, being encoded, and just read
    assert len(list(answers)) == 49


def test_wrong_arguments(model: MultiExitModel, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match=r"item 1 is no pair of texts: the model answers \(question, context\)"):
        predict(model, [("a film", "the plot"), "a film"])
    with pytest.raises(OfframpError, match="question 0 is empty"):
        predict(model, [("", "the plot")])
    with pytest.raises(OfframpError, match="n_best must be 1 or more, not 0"):
        SpanPredictor(model, n_best=0)
    with pytest.raises(OfframpError, match="window makes no sense for span"):
        SpanPredictor(model, "window(2)")
    with pytest.raises(OfframpError, match="answers with labels or numbers: use Engine"):
        SpanPredictor(model_folder(tmp_path / "labels"))
