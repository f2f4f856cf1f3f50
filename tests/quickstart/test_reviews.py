"""Generated reviews: the same everywhere, balanced, all different, and not to be told by their words alone."""

from __future__ import annotations

import csv
import hashlib
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp import OfframpError
from offramp.quickstart.parts import PARTS, generated_parts
from offramp.quickstart.reviews import GRADES, MOST, make_reviews
from offramp.quickstart.words import BAD, CONDITIONAL, GOOD, NEUTRAL, OF_VERDICT, PATTERNS, TORN

DIGEST = "5f764733f705441f"


def test_the_same_for_a_seed_on_every_machine() -> None:
    found = json.dumps(make_reviews(500, seed=7)).encode()
    assert hashlib.blake2b(found, digest_size=8).hexdigest() == DIGEST


def test_nothing_else_is_drawn_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the global generator nor methods whose numbers may change from one Python to the next."""
    expected = make_reviews(50, seed=3)
    random.seed(99)
    for method in ("choice", "choices", "shuffle", "sample", "randint", "randrange", "getrandbits"):
        monkeypatch.setattr(random.Random, method, None)
    assert make_reviews(50, seed=3) == expected


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 600), seed=st.integers(0, 2**32))
def test_balanced_and_all_different(rows: int, seed: int) -> None:
    reviews = make_reviews(rows, seed)
    assert len({one.review for one in reviews}) == len(reviews) == rows
    for names in ([one.grade for one in reviews], [one.verdict for one in reviews]):
        counts = Counter(names).values()
        assert max(counts) - min(counts) <= 2 or rows < 2 * len(GRADES)
    assert make_reviews(rows // 2 + 1, seed) == reviews[: rows // 2 + 1]


def test_seeds_differ() -> None:
    one, other = ({review.review for review in make_reviews(300, seed)} for seed in (0, 1))
    assert len(one & other) < 30


def test_as_people_write() -> None:
    for one in make_reviews(2000):
        assert re.fullmatch(r"[A-Z][A-Za-z ,;:.!'-]*[.]", one.review), one
        assert not re.search(r"\b[Aa] [aeiou]|\ban [^aeiou]|\bi\b|  | [,.;:]|[{}+]", one.review), one


def test_every_slot_is_known() -> None:
    patterns = [*TORN, *(p for some in (*PATTERNS.values(), *CONDITIONAL.values()) for p in some)]
    for name, side in re.findall(r"\{(\w+)([+-]?)\}", " ".join(patterns)):
        assert name in (OF_VERDICT if side else NEUTRAL)
    assert set(GRADES) == {*PATTERNS, "conditional"}
    for sides in OF_VERDICT.values():
        assert not set(sides[GOOD]) & set(sides[BAD])


def test_a_list_of_words_tells_plain_reviews_and_not_the_others() -> None:
    """Counting the adjectives of either side, as one would by hand."""
    sides = {word: verdict for verdict, words in OF_VERDICT["adj"].items() for word in words}
    right: dict[str, list[bool]] = {grade: [] for grade in GRADES}
    for one in make_reviews(4000):
        votes = Counter(sides[word] for word in re.findall(r"\w+", one.review.lower()) if word in sides)
        if votes[GOOD] != votes[BAD]:
            right[one.grade].append((votes[GOOD] > votes[BAD]) == (one.verdict == GOOD))
    scores = {grade: sum(found) / len(found) for grade, found in right.items()}
    assert scores["plain"] == scores["strong"] == 1
    assert scores["negated"] < 0.5
    assert sum(scores.values()) / len(scores) < 0.8


def test_parts_share_no_review(tmp_path: Path) -> None:
    parts = generated_parts(tmp_path, 400, seed=1)
    read = {name: list(csv.DictReader((tmp_path / f"{name}.csv").open(encoding="utf-8"))) for name in PARTS}
    texts = {name: {row["review"] for row in rows} for name, rows in read.items()}
    assert not texts["train"] & texts["dev"]
    assert not (texts["train"] | texts["dev"]) & texts["test"]
    assert parts.rows == {"train": 400, "dev": 200, "test": 200} == {name: len(rows) for name, rows in read.items()}
    assert parts.grades == tuple(row["grade"] for row in read["test"])
    assert parts.task.labels == ("bad", "good")
    assert {name: len(parts.task.split(name)) for name in PARTS} == parts.rows
    assert parts.task.split("test").texts == [row["review"] for row in read["test"]]


@pytest.mark.parametrize("rows", [0, -1, MOST + 1])
def test_too_few_or_too_many(rows: int) -> None:
    with pytest.raises(OfframpError, match="between 1 and 100,000"):
        make_reviews(rows)
