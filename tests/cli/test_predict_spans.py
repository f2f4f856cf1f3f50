"""`offramp predict` with a model that answers questions, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.engine.host_runner import HostRunner
from offramp.prediction import SpanPredictor, predict
from offramp.tasks.squad import read_squad
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.prediction.models import model_folder

Run = Callable[..., Result]
FILES = ("predictions_.json", "nbest_predictions_.json", "null_odds_.json")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {"span": model_folder(place / "span", span=True), "labels": model_folder(place / "labels")}


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("version2", [True, False])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_file(run: Run, models: dict[str, Path], tmp_path: Path, version2: bool, labelled: bool) -> None:
    data = squad_file(tmp_path / "dev.json", version2=version2, labelled=labelled)
    done = run("predict", models["span"], "--data", data, "--out", tmp_path / "out", "--policy", "patience(1)")
    assert done.status == 0, done.err
    questions = read_squad(data)
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(FILES if questions.version2 else FILES[:2])
    expected = list(SpanPredictor(models["span"], "patience(1)").stream_questions(questions))
    assert read(tmp_path / "out", FILES[0]) == {one.answer.id: one.text for one in expected}
    assert list(read(tmp_path / "out", FILES[1])) == [question.id for question in questions.questions]
    layers = [layer for one in expected for layer in one.exit_layers]
    assert f"12 answers under patience(1), from {len(layers)} windows" in done.err
    assert f"after {sum(layers) / len(layers):.2f} of 5 layers" in done.err


def test_options(run: Run, models: dict[str, Path], tmp_path: Path) -> None:
    data, out = squad_file(tmp_path / "dev.json", version2=False), tmp_path / "out"
    options = ("--null-threshold", "-1000000", "--n-best", "2", "--max-answer-tokens", "1")
    done = run("predict", models["span"], data, "--out", out, *options)
    assert done.status == 0, done.err
    assert set(read(out, FILES[0]).values()) == {""}
    for candidates in read(out, FILES[1]).values():
        assert len(candidates) <= 3, "two, and no answer"
        assert all(len(candidate["text"].split()) <= 1 for candidate in candidates)
    assert min(read(out, FILES[2]).values()) > -1000000


def test_a_question(run: Run, models: dict[str, Path]) -> None:
    done = run("predict", models["span"], "was it good", "--pair", "a very good film with a plot")
    assert done.status == 0, done.err
    [expected] = predict(models["span"], [("was it good", "a very good film with a plot")])
    assert json.loads(done.out) == {
        "question": "was it good",
        "answer": expected.text,
        "score": pytest.approx(expected.score, abs=1e-5),
        "exit_layers": [5],
    }


def test_answers_are_not_written_over(run: Run, models: dict[str, Path], tmp_path: Path) -> None:
    data, out = squad_file(tmp_path / "dev.json"), tmp_path / "out"
    arguments = ("predict", models["span"], "--data", data, "--out", out)
    assert run(*arguments).status == 0
    refused = run(*arguments)
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "predictions_.json exists: name another folder, or say --overwrite" in refused.err
    assert run(*arguments, "--overwrite").status == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected a file of questions (--data FILE), or a question"),
        (("a question",), "give the question, and the text with --pair"),
        (("a question", "--pair", "a film", "--out", "x"), "--out is for the questions of a file"),
        (("a question", "--data", "{data}"), "expected a file of questions (--data FILE), or a question"),
        (("--data", "{data}"), "name a folder for them with --out"),
        (("--data", "{data}", "--out", "{data}"), "is a file: name a folder"),
        (("--data", "{data}", "--pair", "a film"), "--pair is the context of a question"),
        (("--data", "missing.json", "--out", "{out}"), "missing.json"),
        (("--data", "{data}", "--out", "{out}", "--keep", "id"), "--keep is for models that answer with labels"),
        (("--data", "{data}", "--out", "{out}", "--original-names"), "--original-names is for upload files"),
        (("--data", "{data}", "--out", "{out}", "--policy", "window(2)"), "window makes no sense for span"),
        (("--data", "{data}", "--policy", "fixed(1)", "--policy", "fixed(2)"), "one policy at a time"),
    ],
)
def test_bad_input(run: Run, models: dict[str, Path], tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    data, out = squad_file(tmp_path / "dev.json"), tmp_path / "out"
    refused = run("predict", models["span"], *(argument.format(data=data, out=out) for argument in arguments))
    assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
    assert message in refused.err
    assert not out.exists()


@pytest.mark.parametrize("option", [("--null-threshold", "1"), ("--n-best", "2"), ("--data", "dev.json")])
def test_options_of_questions_are_refused_by_models_of_labels(
    run: Run, models: dict[str, Path], option: tuple[str, str]
) -> None:
    refused = run("predict", models["labels"], "a film", *option)
    assert refused.status == 2
    assert f"{option[0]} is for models that answer questions with spans" in refused.err


def test_stopped(run: Run, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HostRunner, "submit", interrupted)
    data, out = squad_file(tmp_path / "dev.json"), tmp_path / "out"
    stopped = run("predict", models["span"], "--data", data, "--out", out)
    assert stopped.status == 130
    assert "stopped after 0 of 12 questions: nothing was written" in stopped.err
    assert not out.exists()
