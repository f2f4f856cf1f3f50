"""Questions on contexts, whose answers are spans of them."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import astuple, dataclass, replace

from offramp.errors import OfframpError

log = logging.getLogger("offramp")

NOWHERE = -1
"""Where an answer starts that is not in its context."""


@dataclass(frozen=True)
class Question:
    """A question, the text it is asked of, and every answer people gave."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    """As written in the file; none where there is no answer, or where it is not known."""
    starts: tuple[int, ...]
    """The character of the context at which each answer starts, or `NOWHERE`."""
    impossible: bool
    """Whether the context is known to hold no answer (SQuAD 2.0)."""

    @property
    def span(self) -> tuple[int, int] | None:
        """First character and end of the first answer that is in the context."""
        spans = zip(self.starts, self.answers, strict=True)
        return next(((start, start + len(text)) for start, text in spans if start != NOWHERE), None)


@dataclass(frozen=True)
class Questions:
    """The questions of one split, in the order of their file: what `Examples` is to tasks on labels."""

    questions: list[Question]
    version2: bool
    """Whether some questions have no answer (SQuAD 2.0), so that a model may answer with nothing."""
    source: str
    """The file they come from."""
    labelled: bool
    """Whether the answers are known."""

    def __len__(self) -> int:
        return len(self.questions)

    def digest(self) -> str:
        """The same for the same questions, contexts and answers, and for no others."""
        rows = json.dumps([self.version2, self.labelled, [astuple(question) for question in self.questions]])
        return hashlib.blake2b(rows.encode(), digest_size=8).hexdigest()


def trainable(questions: Questions) -> Questions:
    """The questions to train on: those whose answer is somewhere in the context, or known not to be there.

    A warning says how many are left out. Scoring must not use this: there, every question counts.
    """
    if not questions.labelled:
        raise OfframpError(f"{questions.source}: no question has an answer: there is nothing to train on")
    kept = [question for question in questions.questions if question.impossible or question.span is not None]
    lost = len(questions) - len(kept)
    if not kept:
        raise OfframpError(f"{questions.source}: not one of its {lost} answers is in its context: nothing to train on")
    if lost:
        log.warning("%s: %d of %d answers are not in their contexts: left out", questions.source, lost, len(questions))
    return replace(questions, questions=kept)
