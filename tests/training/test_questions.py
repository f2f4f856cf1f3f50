"""`offramp.train` on questions: spans, with and without gates, from files in SQuAD's format."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from transformers import AutoModelForQuestionAnswering

import offramp
from offramp.recipes import EBERT, ElasticBERT, Plain, Recipe, Schedule
from offramp.tasks import Task
from tests.generated import backbone_folder

FAST = Schedule(learning_rate=5e-3, epochs=10, batch_size=8)
RECIPES: dict[str, Recipe] = {
    "plain": Plain(FAST),
    "elasticbert": ElasticBERT(schedule=FAST),
    "ebert+elasticbert": EBERT(target=0.7, block=8, base=ElasticBERT(), schedule=FAST),
}


def entry(number: int, context: str, answer: str, start: int | None = None) -> dict[str, object]:
    at = context.index(answer) if start is None else start
    asked = {"id": f"q{number}", "question": "the cast was ?", "answers": [{"text": answer, "answer_start": at}]}
    return {"context": context, "qas": [asked]}


def squad_files(folder: Path, *more: dict[str, object]) -> Path:
    """Questions whose answer is the two words of praise; the dev questions are among those of training."""
    fillers = ["a film", "the plot of it", "it was very", "the story and a scene", "with the cast"]
    praise = ["good", "fine", "great"]
    made = [
        entry(
            number,
            f"{fillers[number % 5]} very {praise[number % 3]} {fillers[number % 4]}",
            f"very {praise[number % 3]}",
        )
        for number in range(30)
    ]
    for name, entries in (("train", [*made, *more]), ("dev", made[:12])):
        data = {"version": "1.1", "data": [{"title": "", "paragraphs": entries}]}
        (folder / f"{name}-v1.1.json").write_text(json.dumps(data))
    return folder


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbone_folder(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return offramp.task("squad", data_dir=squad_files(tmp_path_factory.mktemp("squad")))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_learns(recipe: Recipe, backbone: Path, task: Task, tmp_path: Path) -> None:
    model = offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True, max_length=32)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["dev"]["metric"] == "f1"
    assert record["dev"]["exits"]["3"] > 0.7
    assert record["max_length"] == model.config.max_text_tokens == 32
    again = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "model")
    assert again.exits.layers == model.exits.layers
    trace = offramp.evaluate(tmp_path / "model")
    assert trace.scores()[-1].scores["f1"] == pytest.approx(record["dev"]["exits"]["3"])
    card = (tmp_path / "model" / "README.md").read_text()
    assert "question-answering" in card
    assert ("Gates skip the heads and blocks of 8 neurons" in card) == isinstance(recipe, EBERT)
    [answer] = offramp.predict(tmp_path / "model", [("the cast was ?", "it was very great a film")])
    assert answer.text in "it was very great a film"


def test_the_stride_of_training_is_that_of_answers(backbone: Path, task: Task, tmp_path: Path) -> None:
    """Three words fit beside the question: with a stride of 1 a context is read word by word, not at once."""
    counts = {}
    for stride in (None, 1):
        folder, settings = tmp_path / str(stride), {"max_length": 14, "stride": stride, "quiet": True}
        offramp.train(backbone, task, folder, Plain(), max_steps=1, **settings)  # type: ignore[arg-type]
        assert json.loads((folder / "training.json").read_text())["stride"] == (stride or 128)
        assert offramp.load(folder).config.window_stride == (stride or 128)
        trace = offramp.evaluate(folder)
        counts[stride] = len(trace.lengths)
    assert counts[1] > counts[None]


def test_an_answer_that_is_nowhere_is_counted_and_left_out(
    backbone: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = offramp.task("squad", data_dir=squad_files(tmp_path, entry(99, "a film with the cast", "awful", 0)))
    with caplog.at_level(logging.WARNING, logger="offramp"):
        offramp.train(backbone, task, tmp_path / "model", Plain(Schedule(epochs=1)), quiet=True, max_length=32)
    assert any("1" in r.getMessage() and "train" in r.getMessage() for r in caplog.records)


def test_a_model_of_labels_is_given_new_exits(backbone: Path, task: Task, tmp_path: Path) -> None:
    """What was trained on labels can go on with spans: its classifiers start anew."""
    labels = offramp.load(backbone, num_labels=2)
    labels.save_pretrained(tmp_path / "labels")
    for file in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        if (backbone / file).is_file():
            (tmp_path / "labels" / file).write_bytes((backbone / file).read_bytes())
    model = offramp.train(
        tmp_path / "labels", task, tmp_path / "model", Plain(Schedule(epochs=1)), quiet=True, max_length=32
    )
    assert model.objective.name == "span"
