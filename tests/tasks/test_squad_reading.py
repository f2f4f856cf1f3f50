"""SQuAD's files: both versions, plain and packed; what is wrong is said in one line, and no question is lost."""

from __future__ import annotations

import gzip
import json
import logging
import lzma
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp.errors import OfframpError
from offramp.tasks.squad import read_squad, trainable
from offramp.tasks.squad.questions import NOWHERE
from offramp.training.published import benchmark_of, published_recipe
from tests.tasks.squad_made import document, entry, squad_file

CONTEXT = "basel, north of basel"


@pytest.mark.parametrize("packed", ["", ".xz", ".gz"])
def test_reads_plain_and_packed(packed: str, tmp_path: Path) -> None:
    content = json.dumps(document(CONTEXT, entry("a", ("basel", 0), ("north", 7)), entry(2, ("basel", 16)))).encode()
    path = tmp_path / f"dev.json{packed}"
    path.write_bytes({"": bytes, ".xz": lzma.compress, ".gz": gzip.compress}[packed](content))
    found = read_squad(path)
    assert (len(found), found.version2, found.labelled, found.source) == (2, False, True, str(path))
    assert [(q.id, q.answers, q.starts, q.impossible) for q in found.questions] == [
        ("a", ("basel", "north"), (0, 7), False),
        ("2", ("basel",), (16,), False),
    ]


STARTS = {
    "as the file says": ("basel", 16, 16),
    "a little off": ("basel", 14, 16),
    "nearest before": ("basel", 3, 0),
    "nearest after": ("basel", 12, 16),
    "overlapping what the file says": ("north", 8, 7),
    "far behind the end": ("basel", 999, 16),
    "before the beginning": ("basel", -5, 0),
    "nowhere": ("Basel", 0, NOWHERE),
}


@pytest.mark.parametrize("case", STARTS)
def test_an_answer_is_looked_up_where_it_is_not_where_the_file_says(case: str, tmp_path: Path) -> None:
    text, said, start = STARTS[case]
    found = read_squad(squad_file(tmp_path / "a.json", entry("a", (text, said)), context=CONTEXT))
    assert found.questions[0].starts == (start,)


def test_version_2_by_flag_or_by_number(tmp_path: Path) -> None:
    flagged = squad_file(tmp_path / "a.json", entry("a", ("basel", 9), is_impossible=False), entry("b"))
    numbered = squad_file(tmp_path / "b.json", entry("a", ("basel", 9)), entry("b"), version="v2.0")
    for path in (flagged, numbered):
        found = read_squad(path)
        assert (found.version2, [q.impossible for q in found.questions]) == (True, [False, True])
    assert read_squad(flagged).digest() == read_squad(numbered).digest()
    assert (
        read_squad(flagged).digest() != read_squad(squad_file(tmp_path / "c.json", entry("a", ("north", 0)))).digest()
    )


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_a_test_set_has_no_answers(version: str, tmp_path: Path) -> None:
    made = {"id": "a", "question": "From where?"}
    found = read_squad(squad_file(tmp_path / "test.json", made, version=version))
    assert not found.labelled
    assert not found.questions[0].impossible
    with pytest.raises(OfframpError, match="nothing to train on"):
        trainable(found)


def test_training_leaves_out_answers_that_are_not_in_the_context_and_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = [entry("a", ("Rome", 0)), entry("b", ("Rome", 0), ("basel", 9)), entry("c", is_impossible=True)]
    found = read_squad(squad_file(tmp_path / "a.json", *made))
    with caplog.at_level(logging.WARNING, "offramp"):
        assert [question.id for question in trainable(found).questions] == ["b", "c"]
    assert "1 of 3 answers are not in their contexts" in caplog.text
    assert found.questions[1].span == (9, 14)
    assert len(found) == 3
    with pytest.raises(OfframpError, match="not one of its 1 answers"):
        trainable(read_squad(squad_file(tmp_path / "b.json", made[0])))


def test_empty_questions_and_contexts_are_kept_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = entry("a", ("Rome", 0), question=" ")
    with caplog.at_level(logging.WARNING, "offramp"):
        assert len(read_squad(squad_file(tmp_path / "a.json", made, context=""))) == 1
    assert "an empty question in 1 questions, the first of id 'a'" in caplog.text
    assert "an empty context in 1 questions" in caplog.text


def _one(**changed: Any) -> bytes:
    return json.dumps(document(CONTEXT, {**entry("a", ("basel", 0)), **changed})).encode()


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b" \n", "is empty"),
    "not JSON": (b'{"data": [', "is not JSON"),
    "binary": (b"\x80\x81\x82\xff" * 9, "is not JSON"),
    "a list": (b"[1]", "is no SQuAD file: expected"),
    "no articles": (b'{"data": []}', "holds no questions"),
    "no paragraphs": (b'{"data": [{"text": "x"}]}', "article 1 has no list 'paragraphs'"),
    "no context": (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1, paragraph 1 has no context"),
    "questions not in a list": (b'{"data": [{"paragraphs": [{"context": "", "qas": 3}]}]}', "no list 'qas'"),
    "no id": (_one(id=None), "has no id"),
    "no question": (_one(question=None), "question 'a' has no 'question'"),
    "answers not in a list": (_one(answers={"text": ["x"]}), "question 'a': expected \"answers\""),
    "answer without start": (_one(answers=[{"text": "basel"}]), "question 'a': expected \"answers\""),
    "answer and impossible": (_one(is_impossible=True), "question 'a' is_impossible, yet has an answer, 'basel'"),
    "impossible is a text": (_one(is_impossible="no"), "is_impossible is 'no': expected true or false"),
    "half a surrogate pair": (_one(question="\ud800"), "half a surrogate pair"),
    "two of one id": (
        json.dumps(document(CONTEXT, entry("a", ("north", 0)), entry("a", ("basel", 0)))).encode(),
        "two questions have the id 'a'",
    ),
    "an answer missing in 1.1": (
        json.dumps(document(CONTEXT, entry("a", ("north", 0)), entry("b", (" ", 5)))).encode(),
        "question 'b' has no answer",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(case: str, tmp_path: Path) -> None:
    content, message = WRONG[case]
    path = tmp_path / "dev.json"
    path.write_bytes(content)
    with pytest.raises(OfframpError) as refused:
        read_squad(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_damaged_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "dev.json.xz").write_bytes(lzma.compress(b"x" * 10_000)[:60])
    with pytest.raises(OfframpError, match="damaged or cut short"):
        read_squad(tmp_path / "dev.json.xz")
    with pytest.raises(OfframpError, match=r"dev\.json does not exist: did you mean .*dev\.json\.xz"):
        read_squad(tmp_path / "dev.json")


def test_the_task_finds_its_files_and_its_record_makes_it_again(tmp_path: Path) -> None:
    squad_file(tmp_path / "train-v1.1.json", entry("t", ("basel", 9)))
    squad_file(tmp_path / "dev-v1.1.json", entry("d", ("basel", 9)))
    squad_file(tmp_path / "dev-v2.0.json", entry("e", is_impossible=True))  # the training file's version decides
    made = offramp.task("SQuAD", data_dir=tmp_path)
    assert (made.name, made.kind, made.metrics, made.splits) == ("squad", "span", ("f1", "exact"), ("train", "dev"))
    named = offramp.task("squad", data=tmp_path / "train-v1.1.json", dev=tmp_path / "dev-v2.0.json")
    for task, last in ((made, "d"), (named, "e")):
        again = offramp.task(**json.loads(json.dumps(task.record)))
        for known in (task, again):
            assert [known.split(split).questions[0].id for split in known.splits] == ["t", last]


def test_both_versions_in_one_folder(tmp_path: Path) -> None:
    """As `offramp data squad` writes them: each task finds its own, and so does its record."""
    for split in ("train", "dev"):
        squad_file(tmp_path / f"{split}-v1.1.json", entry(f"{split}1", ("basel", 9)))
        squad_file(tmp_path / f"{split}-v2.0.json", entry(f"{split}2", is_impossible=True))
    for name, version in (("squad", "1"), ("squad2", "2"), ("SQuAD-2", "2")):
        made = offramp.task(name, data_dir=tmp_path)
        for task in (made, offramp.task(**json.loads(json.dumps(made.record)))):
            assert [task.split(split).questions[0].id for split in task.splits] == [f"train{version}", f"dev{version}"]
            assert published_recipe("ebert", benchmark_of(task), "bert").schedule.batch_size == 12  # type: ignore[attr-defined]


def test_the_task_refuses_what_it_cannot_tell(tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match=r"expected train….json or dev….json.*it has no .json file"):
        offramp.task("squad", data_dir=tmp_path)
    for name in ("dev-v1.1.json", "dev-v1.1.json.xz"):
        squad_file(tmp_path / name, entry("d", ("basel", 9)))
    with pytest.raises(OfframpError, match=r"dev-v1.1.json and dev-v1.1.json.xz could each be dev"):
        offramp.task("squad", data_dir=tmp_path)
    with pytest.raises(OfframpError, match=r"expected files of SQuAD 2.0, as dev-v2.0.json"):
        offramp.task("squad2", data_dir=tmp_path)
    squad_file(tmp_path / "dev-v2.0.json", entry("d", ("basel", 9)))
    with pytest.raises(OfframpError, match="expected the folder of its files"):
        offramp.task("squad")
    with pytest.raises(OfframpError, match="does not exist"):
        offramp.task("squad", dev=tmp_path / "dev-v3.json")
    with pytest.raises(OfframpError, match="metric is for own data"):
        offramp.task("squad", dev=tmp_path / "dev-v2.0.json", metric="f1")


def test_a_users_table_may_be_called_squad(tmp_path: Path) -> None:
    (tmp_path / "squad.csv").write_text("text,label\na,x\nb,y\n")
    made = offramp.task(data=tmp_path / "squad.csv", dev_share=0)
    assert offramp.task(**made.record).kind == "classification"
