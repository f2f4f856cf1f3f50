"""Exact match and F1 as SQuAD's official evaluation programs (1.1 and 2.0) count them, as fractions."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError
from offramp.tasks.squad.questions import Question, Questions

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_scores(
    predictions: Mapping[str, str],
    questions: Questions,
    null_odds: Mapping[str, float] | None = None,
    null_threshold: float = float("inf"),
) -> dict[str, float]:
    """`exact` and `f1`, over all questions; for 2.0 also over those with an answer (`HasAns_`) and without (`NoAns_`).

    `predictions` are texts by id. In 2.0, where `null_odds` are given, questions whose odds are over `null_threshold`
    count as answered with nothing, and `best_exact`, `best_f1` say what the best thresholds (`best_exact_thresh`,
    `best_f1_thresh`) would give. To search all thresholds, predict `Answer.best`: a text that is empty already stays
    so.
    """
    missing = [question.id for question in questions.questions if question.id not in predictions]
    if missing:
        raise OfframpError(
            f"{len(missing)} of {len(questions)} questions of {questions.source} have no prediction, the first is "
            f'{missing[0]!r}: expected one for each, "" for no answer'
        )
    texts = [predictions[question.id] for question in questions.questions]
    gold = GoldAnswers(questions)
    each = np.array([gold.score(number, text) for number, text in enumerate(texts)]).reshape(-1, 2)
    odds = None
    if questions.version2 and null_odds is not None:
        unknown = [question.id for question in questions.questions if question.id not in null_odds]
        if unknown:
            raise OfframpError(f"{len(unknown)} questions have no null odds, the first is {unknown[0]!r}")
        odds = np.array([null_odds[question.id] for question in questions.questions], dtype=np.float64)
    answered = np.array([bool(text) for text in texts])
    return summary(each[:, 0], each[:, 1], answered, gold, odds, null_threshold)


class GoldAnswers:
    """The answers of a set of questions, made ready to be compared with many texts."""

    def __init__(self, questions: Questions) -> None:
        if not questions.labelled:
            raise OfframpError(f"{questions.source}: its answers are not known: there is nothing to score against")
        if not len(questions):
            raise OfframpError(f"{questions.source}: no questions to score")
        self.version2 = questions.version2
        self.has_answer: Bools = np.array([bool(question.answers) for question in questions.questions])
        self._gold = [self._texts(question) for question in questions.questions]
        self._words = [[words_of(text) for text in texts] for texts in self._gold]
        self._known: dict[tuple[int, str], tuple[float, float]] = {}

    def score(self, question: int, text: str) -> tuple[float, float]:
        """Exact match and F1 of a text, each against the answer that suits it best."""
        plain = normalise(text)
        key = question, plain
        if key not in self._known:
            words = words_of(plain)
            exact = max(float(plain == gold) for gold in self._gold[question])
            self._known[key] = exact, max(self._f1(words, gold) for gold in self._words[question])
        return self._known[key]

    def _texts(self, question: Question) -> list[str]:
        """2.0 does not count answers of which nothing is left, and takes the empty text where there is no other."""
        plain = [normalise(answer) for answer in question.answers]
        return plain if not self.version2 else [text for text in plain if text] or [""]

    def _f1(self, words: Counter[str], gold: Counter[str]) -> float:
        """2 · precision · recall / (precision + recall) of the words, each as often as it occurs.

        Of nothing and nothing it is 1 in 2.0, but 0 in 1.1.
        """
        if self.version2 and not (words and gold):
            return float(words == gold)
        same = (words & gold).total()
        return 2 * same / (words.total() + gold.total()) if same else 0.0


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an and the; one blank between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def words_of(plain: str) -> Counter[str]:
    return Counter(plain.split())


def summary(
    exact: Floats, f1: Floats, answered: Bools, gold: GoldAnswers, odds: Floats | None, null_threshold: float
) -> dict[str, float]:
    """Means of the scores (Q,) that the predicted texts have; `answered` where such a text is not empty."""
    has_answer = gold.has_answer
    found: dict[str, float] = {}
    if odds is not None:
        for name, raw in (("exact", exact), ("f1", f1)):
            found[f"best_{name}"], found[f"best_{name}_thresh"] = best_threshold(raw, answered, has_answer, odds)
        empty = odds > null_threshold
        exact, f1 = (np.where(empty, ~has_answer, raw) for raw in (exact, f1))
    scores: dict[str, Floats] = {"exact": exact, "f1": f1}
    parts: dict[str, Any] = {"": slice(None)}
    if gold.version2:
        parts |= {"HasAns_": has_answer, "NoAns_": ~has_answer}
    means = {
        f"{part}{name}": float(each[chosen].mean())
        for part, chosen in parts.items()
        for name, each in scores.items()
        if len(each[chosen])
    }
    return means | found


def best_threshold(scores: Floats, answered: Bools, has_answer: Bools, odds: Floats) -> tuple[float, float]:
    """The best mean that a threshold on the null odds gives, and the threshold.

    Starting from no answers at all, questions are answered in the order of their odds: one that has an answer adds its
    score, one that has none takes 1 off if it is answered. The threshold is the odds of the last one answered. Where
    it is best to answer none, the official program says 0, as its odds are probabilities; here it is below all odds.
    """
    order = np.argsort(odds, kind="stable")
    changes = np.where(has_answer, scores, -answered.astype(np.float64))[order]
    so_far = np.concatenate([[0.0], changes.cumsum()])
    best = int(so_far.argmax())
    threshold = float(odds[order[best - 1]]) if best else min(0.0, float(np.nextafter(odds[order[0]], -np.inf)))
    return float((~has_answer).sum() + so_far[best]) / len(scores), threshold
