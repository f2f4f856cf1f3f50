"""Labels of data and labels of a model: which is which, and when nobody can know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offramp.adding_exits.labels import adopt_names, as_written, given_labels, names_of
from offramp.errors import OfframpError
from tests.tiny import tiny_model

SENTIMENT = ("NEGATIVE", "POSITIVE")
STARS = tuple(f"{stars} stars" for stars in range(1, 6))

MATCHED: dict[str, tuple[tuple[str, ...], set[str], tuple[str, ...]]] = {
    "the same": (SENTIMENT, {"POSITIVE", "NEGATIVE"}, SENTIMENT),
    "lower case": (SENTIMENT, {"positive", "negative"}, ("negative", "positive")),
    "numbers": (SENTIMENT, {"0", "1"}, ("0", "1")),
    "a few of them": (STARS, {"2 stars", "4 stars"}, STARS),
    "one, in upper case": (STARS, {"2 STARS"}, ("1 stars", "2 STARS", *STARS[2:])),
    "a few numbers": (STARS, {"0", "3"}, ("0", "1", "2", "3", "4")),
    "no names": (("LABEL_0", "LABEL_1"), {"0", "1"}, ("0", "1")),
    "no names, written": (("LABEL_0", "LABEL_1"), {"LABEL_1", "LABEL_0"}, ("LABEL_0", "LABEL_1")),
    "cases that differ": (("a", "A"), {"A", "a"}, ("a", "A")),
    "numbers by name": (("0", "1"), {"0", "1"}, ("0", "1")),
}


@pytest.mark.parametrize("case", MATCHED)
def test_matched(case: str) -> None:
    names, found, written = MATCHED[case]
    assert as_written(names, found, "data.csv") == written


REFUSED: dict[str, tuple[tuple[str, ...], set[str], str]] = {
    "other names": (SENTIMENT, {"bad", "good"}, "label 'bad' is none of the model's"),
    "one other name": (SENTIMENT, {"NEGATIVE", "POSITIVE", "MIXED"}, "label 'MIXED' is none"),
    "counted from 1": (STARS, {"1", "2", "3", "4", "5"}, "nor its number"),
    "perhaps counted from 1": (STARS, {"1", "2", "4"}, "label '1' is none of the model's"),
    "names and numbers": (SENTIMENT, {"NEGATIVE", "1"}, "label '1' is none"),
    "one beyond": (SENTIMENT, {"0", "1", "2"}, "nor its number"),
    "other numbers": (("1", "0"), {"0", "1"}, "numbers in another order"),
    "two ways": (("a", "A", "b"), {"a", "B"}, "label 'B' is none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    names, found, message = REFUSED[case]
    with pytest.raises(OfframpError, match=message) as refused:
        as_written(names, found, "data.csv")
    assert str(refused.value).startswith("data.csv: ")
    assert "--labels" in str(refused.value)


@given(st.lists(st.text("aAbB01", min_size=1, max_size=2), min_size=2, max_size=4, unique=True), st.data())
def test_never_another_order(names: list[str], data: st.DataObject) -> None:
    """Whatever is matched, each label is matched with its own name, in any case, or its own number."""
    found = data.draw(st.sets(st.sampled_from([*names, *map(str.swapcase, names), "0", "1", "2", "3"]), min_size=1))
    try:
        written = as_written(names, found, "data.csv")
    except OfframpError:
        return
    assert found <= set(written)
    assert len(set(written)) == len(names)
    by_name = [label.lower() == name.lower() for label, name in zip(written, names, strict=True)]
    assert all(by_name) or written == tuple(map(str, range(len(names))))


def test_given_labels() -> None:
    assert given_labels(["good", "bad"], SENTIMENT, {"bad"}, "data.csv") == ("good", "bad")
    for labels, message in ((["a"], "expected 2, one for each of NEGATIVE, POSITIVE"), (["a", "a"], "expected 2")):
        with pytest.raises(OfframpError, match=message):
            given_labels(labels, SENTIMENT, {"a"}, "data.csv")


def test_names() -> None:
    """A model's own stay; a model without any takes what the data calls them, but no mere numbers."""
    model = tiny_model(num_labels=2)
    assert names_of(model) == ("LABEL_0", "LABEL_1")
    assert adopt_names(model, ("1", "0")) == ("LABEL_0", "LABEL_1")
    assert adopt_names(model, ("bad", "good")) == names_of(model) == ("bad", "good")
    assert adopt_names(model, ("mau", "bom")) == names_of(model) == ("bad", "good")
    model.config.id2label = {0: "same", 1: "same"}
    assert names_of(model) == ("LABEL_0", "LABEL_1")
