"""Exact match and F1, by hand from the rules of SQuAD's official programs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.tasks.squad import Questions, squad_scores
from offramp.tasks.squad.metric import normalise
from tests.tasks.squad_made import asked, questions

SAME: dict[str, tuple[tuple[str, ...], str, float, float]] = {
    "the same": (("Denver Broncos",), "Denver Broncos", 1, 1),
    "case": (("Denver Broncos",), "denver BRONCOS", 1, 1),
    "articles": (("the Denver Broncos",), "A Denver an Broncos", 1, 1),
    "an article inside a word stays": (("theatre",), "atre", 0, 0),
    "punctuation": (("U.S.",), "(US)", 1, 1),
    "punctuation joins words": (("twenty-one",), "twenty one", 0, 0),  # twentyone
    "an article bared by punctuation": (("'the' sun",), "sun!", 1, 1),
    "an article hidden by punctuation": (("a-b",), "b", 0, 0),  # ab
    "white space": (("north  of\tBasel",), " north of\nBasel ", 1, 1),
    "no-break space": (("12\u00a0km",), "12 km", 1, 1),
    "other than ASCII punctuation stays": (("“Basel”",), "Basel", 0, 0),
    "a dash that is no ASCII is a word": (("1914 – 1918",), "1914 1918", 0, 0.8),  # 2·2/(3+2)
    "letters of any script": (("İstanbul ÉCOLE",), "i̇stanbul école", 1, 1),
    "composed and decomposed differ": (("é",), "e\u0301", 0, 0),
    "half": (("Denver Broncos",), "Denver", 0, 2 / 3),  # 2·1/(2+1)
    "too much": (("Broncos",), "the Denver Broncos team", 0, 0.5),  # 2·1/(1+3)
    "words count as often as they occur": (("new new york",), "new york york", 0, 2 / 3),  # 2·2/(3+3)
    "order is no matter to F1": (("b c",), "c b", 0, 1),
    "several answers: the best": (("Denver", "Denver Broncos", "Broncos of Denver"), "Denver Broncos", 1, 1),
    "each measure has its own best": (("x y", "x y z w"), "x y z", 0, 6 / 7),  # 2·3/(3+4), against 4/5
    "nothing shared": (("Denver",), "Carolina", 0, 0),
    "empty prediction": (("Denver",), "", 0, 0),
    "punctuation alone is an empty prediction": (("Denver",), "...", 0, 0),
}


@pytest.mark.parametrize("version2", [False, True])
@pytest.mark.parametrize("case", SAME)
def test_both_versions(case: str, version2: bool) -> None:
    gold, text, exact, f1 = SAME[case]
    found = squad_scores({"a": text}, questions(asked("a", " ".join(gold), *gold), version2=version2))
    assert (found["exact"], found["f1"]) == (exact, pytest.approx(f1))


NOTHING: dict[str, tuple[tuple[str, ...], str, tuple[float, float], tuple[float, float]]] = {
    "an answer that is an article, no answer": (("The",), "", (1, 0), (1, 1)),
    "an answer that is an article, some answer": (("The",), "sun", (0, 0), (0, 0)),
    "an answer of punctuation among others": (("!", "sun"), "", (1, 0), (0, 0)),
}


@pytest.mark.parametrize("case", NOTHING)
def test_versions_differ_on_answers_of_which_nothing_is_left(case: str) -> None:
    """1.1 finds '' equal to '', but no word in common (F1 0); 2.0 drops such answers, and F1 of '' and '' is 1."""
    gold, text, *expected = NOTHING[case]
    for version2, scores in zip((False, True), expected, strict=True):
        found = squad_scores({"a": text}, questions(asked("a", "x", *gold), version2=version2))
        assert (found["exact"], found["f1"]) == scores


def version2() -> Questions:
    context = "the rhine flows north"
    return questions(
        asked("yes", context, "the rhine"),
        asked("half", context, "flows north"),
        asked("no", context),
        asked("never", context),
        version2=True,
    )


def test_no_answer() -> None:
    found = squad_scores({"yes": "rhine", "half": "north", "no": "", "never": "rhine", "unknown": "x"}, version2())
    assert found == pytest.approx(
        {
            "exact": 2 / 4,
            "f1": (1 + 2 / 3 + 1 + 0) / 4,
            "HasAns_exact": 1 / 2,
            "HasAns_f1": (1 + 2 / 3) / 2,
            "NoAns_exact": 1 / 2,
            "NoAns_f1": 1 / 2,
        }
    )
    none = squad_scores({"yes": "", "half": "", "no": "", "never": "an"}, version2())
    assert (none["HasAns_f1"], none["NoAns_exact"], none["NoAns_f1"]) == (0, 1, 1)
    possible = questions(asked("yes", "the rhine", "rhine"), version2=True)
    assert set(squad_scores({"yes": "rhine"}, possible)) == {"exact", "f1", "HasAns_exact", "HasAns_f1"}


TEXTS = {"yes": "rhine", "half": "north", "no": "rhine", "never": "rhine"}


def test_the_best_threshold() -> None:
    """In the order of the odds: yes (+1, +1), no (−1, −1), half (+0, +⅔), never (−1, −1), from 2 for none answered."""
    odds = {"yes": -3.0, "no": -1.0, "half": 2.0, "never": 5.0}
    found = squad_scores(TEXTS, version2(), odds, null_threshold=2.0)
    assert found["best_exact"] == found["best_f1"] == 3 / 4
    assert found["best_exact_thresh"] == found["best_f1_thresh"] == -3.0
    assert (found["exact"], found["f1"]) == (2 / 4, pytest.approx((1 + 2 / 3 + 0 + 1) / 4))
    later = squad_scores(TEXTS, version2(), odds | {"no": 3.0}, null_threshold=-3.0)
    assert (later["best_f1"], later["best_f1_thresh"]) == (pytest.approx((2 + 1 + 2 / 3) / 4), 2.0)
    assert (later["best_exact"], later["best_exact_thresh"]) == (3 / 4, -3.0)
    assert (later["exact"], later["HasAns_exact"], later["NoAns_exact"]) == (3 / 4, 1 / 2, 1)


@given(
    odds=st.permutations([-3.5, -1.0, 0.0, 2.5]), texts=st.tuples(*[st.sampled_from(["", "rhine", "flows north"])] * 4)
)
def test_no_threshold_gives_more_than_the_best(odds: list[float], texts: tuple[str, ...]) -> None:
    by_id = dict(zip(TEXTS, odds, strict=True))
    predictions = dict(zip(TEXTS, texts, strict=True))
    found = squad_scores(predictions, version2(), by_id)
    each = [squad_scores(predictions, version2(), by_id, threshold) for threshold in (-9.0, *odds)]
    for name in ("exact", "f1"):
        at_best = squad_scores(predictions, version2(), by_id, found[f"best_{name}_thresh"])
        best = max(scores[name] for scores in each)
        assert found[f"best_{name}"] == pytest.approx(best) == at_best[name]


def test_a_prediction_that_is_empty_costs_nothing_below_the_threshold() -> None:
    odds = {"yes": 1.0, "no": -1.0, "half": 9.0, "never": 9.0}
    found = squad_scores(TEXTS | {"no": ""}, version2(), odds)
    assert (found["best_exact"], found["best_exact_thresh"]) == (3 / 4, 1.0)


def test_where_it_is_best_to_answer_nothing_the_threshold_says_so() -> None:
    odds = {"yes": 2.0, "half": 2.0, "no": -4.0, "never": -3.0}
    found = squad_scores(TEXTS, version2(), odds)
    assert (found["best_exact"], found["best_exact_thresh"] < -4.0) == (0.5, True)
    again = squad_scores(TEXTS, version2(), odds, null_threshold=found["best_exact_thresh"])
    assert (again["exact"], again["NoAns_exact"]) == (0.5, 1)


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(OfframpError, match=r"2 of 4 questions of made.json have no prediction, the first is 'half'"):
        squad_scores({"yes": "", "no": ""}, version2())
    with pytest.raises(OfframpError, match="3 questions have no null odds"):
        squad_scores(TEXTS, version2(), {"yes": 0.0})
    with pytest.raises(OfframpError, match="its answers are not known"):
        squad_scores({}, Questions([], False, "test.json", labelled=False))


def test_articles_are_words_of_their_own() -> None:
    assert normalise("Panama, an idea to bathe the sea") == "panama idea to bathe sea"
