"""SQuAD's JSON files: https://rajpurkar.github.io/SQuAD-explorer, versions 1.1 and 2.0."""

from __future__ import annotations

import json
import logging
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, one_line
from offramp.tasks.files import open_bytes
from offramp.tasks.squad.questions import NOWHERE, Question, Questions

log = logging.getLogger("offramp")

LAYOUT = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": […]}]}]}]}'


def read_squad(path: str | Path) -> Questions:
    """The questions of a SQuAD file, plain or packed (`.xz`, `.gz`, `.bz2`), in its order.

    - It is of version 2.0 if its `version` says so or a question says whether it `is_impossible`. There, a question
      without answers has none; in version 1.1 every question must have one, unless none has (a test set).
    - An answer that does not stand at its `answer_start` is looked up: the place nearest to it counts. If it is
      nowhere in the context, its start is `NOWHERE`: the question is scored all the same, and left out of training
      (`trainable`).
    - An answer of white space alone is none. A question or context that is empty is kept, with a warning: an empty
      question is answered by the context alone, and on an empty context the answer is empty.
    - Refused: two questions of one id, since answers are told apart by it; `is_impossible` beside an answer; whatever
      does not have SQuAD's layout.
    """
    source = str(path)
    document = _json(Path(path))
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise OfframpError(f"{source} is no SQuAD file: expected {LAYOUT}")
    found = list(_entries(articles, source))
    if not found:
        raise OfframpError(f"{source} holds no questions: expected {LAYOUT}")
    version = str(document.get("version", "")).lower().removeprefix("v")
    version2 = version.startswith("2") or any("is_impossible" in entry for _, entry in found)
    questions = [_question(context, entry, source) for context, entry in found]
    _check_ids(questions, source)
    labelled = any(question.answers or question.impossible for question in questions)
    if labelled:
        questions = [_without_doubt(question, version2, source) for question in questions]
    _warn_of_empty(questions, source)
    return Questions(questions, version2, source, labelled)


def _json(path: Path) -> Any:
    try:
        with open_bytes(path) as file:
            content = file.read()
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise OfframpError(f"{path} is damaged or cut short ({one_line(error)}): fetch it again") from error
    if not content.strip():
        raise OfframpError(f"{path} is empty: expected SQuAD's JSON")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise OfframpError(f"{path} is not JSON ({one_line(error)}): expected {LAYOUT}") from error


def _entries(articles: list[Any], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each question's context and its object, down SQuAD's three levels."""
    for number, article in enumerate(articles, start=1):
        where = f"{source}: article {number}"
        for place, paragraph in enumerate(_objects(article, "paragraphs", where), start=1):
            context = paragraph.get("context")
            if not isinstance(context, str):
                raise OfframpError(f"{where}, paragraph {place} has no context: expected a text")
            for entry in _objects(paragraph, "qas", f"{where}, paragraph {place}"):
                yield context, entry


def _objects(holder: Any, key: str, where: str) -> list[dict[str, Any]]:
    found = holder.get(key) if isinstance(holder, dict) else None
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise OfframpError(f"{where} has no list {key!r} of objects: expected {LAYOUT}")
    return found


def _question(context: str, entry: dict[str, Any], source: str) -> Question:
    name = entry.get("id")
    if not isinstance(name, (str, int)) or isinstance(name, bool) or name == "":
        raise OfframpError(f"{source}: question {entry.get('question')!r} has no id: expected a text")
    where = f"{source}: question {name!r}"
    question = entry.get("question")
    if not isinstance(question, str):
        raise OfframpError(f"{where} has no 'question': expected a text")
    for text in (question, context):
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise OfframpError(f"{where} holds half a surrogate pair: expected text")
    impossible = entry.get("is_impossible") or False
    if not isinstance(impossible, bool):
        raise OfframpError(f"{where}: is_impossible is {impossible!r}: expected true or false")
    answers = [answer for answer in _answers(entry, where) if answer[0].strip()]
    starts = tuple(_start(context, text, start) for text, start in answers)
    return Question(str(name), question, context, tuple(text for text, _ in answers), starts, impossible)


def _answers(entry: dict[str, Any], where: str) -> list[tuple[str, int]]:
    given = entry.get("answers")
    if given is None:
        return []
    good = isinstance(given, list) and all(
        isinstance(answer, dict) and isinstance(answer.get("text"), str) and type(answer.get("answer_start")) is int
        for answer in given
    )
    if not good:
        raise OfframpError(f'{where}: expected "answers": [{{"text": a text, "answer_start": a number}}, …]')
    return [(answer["text"], answer["answer_start"]) for answer in given]


def _start(context: str, text: str, said: int) -> int:
    """Where the answer is: where the file says or, if it is not there, at the nearest place that has it."""
    if said >= 0 and context.startswith(text, said):
        return said
    before = context.rfind(text, 0, max(said, 0) + len(text))
    after = context.find(text, max(said, 0))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - said), default=NOWHERE)


def _without_doubt(question: Question, version2: bool, source: str) -> Question:
    """Whether a question has an answer, in a file that says so of some."""
    where = f"{source}: question {question.id!r}"
    if question.impossible and question.answers:
        raise OfframpError(f"{where} is_impossible, yet has an answer, {question.answers[0]!r}: take one of them out")
    if not question.answers and not version2:
        raise OfframpError(f'{where} has no answer: give it one, or say "is_impossible": true as SQuAD 2.0 does')
    return question if question.answers or question.impossible else _impossible(question)


def _impossible(question: Question) -> Question:
    return Question(question.id, question.question, question.context, (), (), impossible=True)


def _check_ids(questions: list[Question], source: str) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise OfframpError(f"{source}: two questions have the id {question.id!r}: expected an id for each")
        seen.add(question.id)


def _warn_of_empty(questions: list[Question], source: str) -> None:
    for part in ("question", "context"):
        empty = [question.id for question in questions if not getattr(question, part).strip()]
        if empty:
            log.warning("%s: an empty %s in %d questions, the first of id %r", source, part, len(empty), empty[0])
