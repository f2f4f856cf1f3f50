"""Reviews made by a grammar, from plain praise to verdicts that take several clauses; the same for a seed."""

from __future__ import annotations

import csv
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from offramp.errors import OfframpError
from offramp.quickstart.words import ASIDES, BAD, CONDITIONAL, GOOD, NEUTRAL, OF_VERDICT, PATTERNS, TORN
from offramp.whole_file import whole_file

GRADES = ("plain", "strong", "negated", "contrasted", "compared", "conditional", "argued")
"""From what a list of words can tell to what takes reading."""
TORN_SHARE = 0.2
"""Of the last grade."""
SHORT, ASIDE_SHARE = 56, 0.6
"""Letters of a sentence that may have another beside it, so that length says little; and how often it has."""
MOST = 100_000
SLOT = re.compile(r"\{(\w+)([+-]?)\}")
AN = re.compile(r"\ba (?=[aeiou])")
CAPITAL = re.compile(r"(?:^|[.!?] )[a-z]|\bi\b")

T = TypeVar("T")


class Review(NamedTuple):
    """A text, what its writer thinks, and how hard that is to tell."""

    review: str
    verdict: str
    grade: str


class Grammar:
    """Draws reviews. Only `random.random` is used, which gives the same numbers in every version of Python."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.draw.random() * len(choices))]

    def review(self, grade: str, verdict: str) -> Review:
        torn = grade == GRADES[-1] and self.draw.random() < TORN_SHARE
        patterns = TORN if torn else CONDITIONAL[verdict] if grade == "conditional" else PATTERNS[grade]
        sentences = [self.filled(self.pick(patterns), self.pick((GOOD, BAD)) if torn else verdict)]
        if len(sentences[0]) < SHORT and self.draw.random() < ASIDE_SHARE:
            sentences.insert(self.pick((0, 1)), self.filled(self.pick(ASIDES), verdict))
        return Review(written(" ".join(sentences)), verdict, grade)

    def filled(self, pattern: str, verdict: str) -> str:
        """The pattern with a word in each slot; no word stands in it twice."""
        used: list[str] = []
        against = BAD if verdict == GOOD else GOOD

        def word(slot: re.Match[str]) -> str:
            name, side = slot.groups()
            choices = OF_VERDICT[name][verdict if side == "+" else against] if side else NEUTRAL[name]
            used.append(self.pick([choice for choice in choices if choice not in used]))
            return used[-1]

        return SLOT.sub(word, pattern)


def written(text: str) -> str:
    """With `an` and capitals where they belong."""
    return CAPITAL.sub(lambda small: small[0].upper(), AN.sub("an ", text))


def make_reviews(rows: int, seed: int = 0) -> list[Review]:
    """So many different reviews: grades and verdicts in turns, so that any part of them is balanced."""
    if not 0 < rows <= MOST:
        raise OfframpError(f"{rows:,} reviews: between 1 and {MOST:,} can be made")
    grammar = Grammar(seed)
    found: dict[str, Review] = {}
    while len(found) < rows:
        turn = len(found)
        one = grammar.review(GRADES[turn // 2 % len(GRADES)], (GOOD, BAD)[turn % 2])
        found.setdefault(one.review, one)
    return list(found.values())


def write_reviews(reviews: Sequence[Review], path: Path) -> None:
    """A CSV file with the columns review, verdict and grade."""
    with whole_file(path) as file:
        csv.writer(file, lineterminator="\n").writerows([Review._fields, *reviews])
