"""A task's labels in a model's order."""

from __future__ import annotations

from typing import Any

import pytest

from offramp import OfframpError
from offramp.tasks.labels import adopt_labels, in_model_order, label_names, label_order
from offramp.tasks.task import Examples, Task
from tests.tiny import tiny_model

MNLI = ("contradiction", "entailment", "neutral")


def task_of(*labels: str) -> Task:
    return Task("made/up", labels, ("accuracy",), False, {})


def named(family: str, *names: str) -> Any:
    model = tiny_model(family, num_labels=len(names))
    model.config.id2label = dict(enumerate(names))
    return model


@pytest.mark.parametrize(
    ("family", "names", "labels", "order"),
    [
        ("bert", ("LABEL_0", "LABEL_1", "LABEL_2"), MNLI, [0, 1, 2]),
        ("roberta", ("LABEL_0", "LABEL_1", "LABEL_2"), MNLI, [0, 2, 1]),
        ("roberta", MNLI, MNLI, [0, 1, 2]),
        ("roberta", ("LABEL_0", "LABEL_1", "LABEL_2"), ("a", "b", "c"), [0, 1, 2]),
        ("bert", ("ENTAILMENT", "Neutral", "contradiction"), MNLI, [2, 0, 1]),
        ("bert", ("yes", "no"), ("no", "yes"), [1, 0]),
        ("bert", ("negative", "positive"), ("0", "1"), [0, 1]),
        ("bert", ("0", "1"), ("no", "yes"), [0, 1]),
        ("bert", ("1", "0"), ("0", "1"), [1, 0]),
        ("bert", ("A", "a"), ("a", "A"), [1, 0]),
    ],
)
def test_order(family: str, names: tuple[str, ...], labels: tuple[str, ...], order: list[int]) -> None:
    model, task = named(family, *names), task_of(*labels)
    assert label_order(model, task) == order
    in_order = label_names(model, task)
    assert [in_order[place] for place in order] == list(labels)
    examples = Examples([""] * len(labels), None, list(range(len(labels))), "here")
    assert in_model_order(model, task, examples) == order


def test_numbers_with_a_meaning() -> None:
    """ELUE's SNLI writes 0, 1, 2 for entailment, neutral, contradiction."""
    task = Task("elue/snli", ("0", "1", "2"), ("accuracy",), True, {})
    assert label_order(named("bert", *MNLI), task) == [1, 2, 0]
    assert label_order(named("bert", "LABEL_0", "LABEL_1", "LABEL_2"), task) == [0, 1, 2]
    wnli = Task("glue/wnli", ("0", "1"), ("accuracy",), True, {})  # 1 is entailment
    assert label_order(named("bert", "entailment", "not_entailment"), wnli) == [1, 0]
    sentiment = Task("glue/sst-2", ("0", "1"), ("accuracy",), False, {})
    assert label_order(named("bert", "POSITIVE", "NEGATIVE"), sentiment) == [1, 0]
    assert label_order(named("bert", "thumbs down", "thumbs up"), sentiment) == [0, 1]


@pytest.mark.parametrize(
    ("model", "labels", "message"),
    [
        (named("bert", "yes", "no"), ("no", "maybe"), "made/up are no, maybe, but the model's are yes, no: put"),
        (named("bert", "a", "b", "c"), ("0", "1", "2"), "made/up are 0, 1, 2, but the model's are a, b, c"),
        (named("bert", "a", "b", "c"), ("a", "b"), r"asks for 2 labels \(a, b\), but the model .* one of 3 labels"),
        (tiny_model(num_labels=1), ("a", "b"), "but the model answers with a number"),
        (tiny_model(), (), "asks for a number, but the model answers with one of 3 labels"),
        (tiny_model(span=True), ("a", "b"), "answers with a span"),
    ],
)
def test_another_task_is_refused(model: Any, labels: tuple[str, ...], message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        label_order(model, task_of(*labels))


def test_numbers_have_no_order() -> None:
    model, task = tiny_model(num_labels=1), Task("sts-b", (), ("pearson",), True, {})
    assert label_order(model, task) == []
    assert in_model_order(model, task, Examples(["", ""], None, [0.5, 4.0], "here")) == [0.5, 4.0]
    with pytest.raises(OfframpError, match="here has no labels"):
        in_model_order(model, task, Examples([""], None, None, "here"))


@pytest.mark.parametrize(
    ("family", "names", "after"),
    [
        ("bert", ("LABEL_0", "LABEL_1", "LABEL_2"), MNLI),
        ("roberta", ("LABEL_0", "LABEL_1", "LABEL_2"), ("contradiction", "neutral", "entailment")),
        ("bert", ("Neutral", "Entailment", "Contradiction"), ("neutral", "entailment", "contradiction")),
        ("bert", ("red", "green", "blue"), MNLI),
    ],
)
def test_a_model_to_be_trained_takes_the_task_s_labels(
    family: str, names: tuple[str, ...], after: tuple[str, ...]
) -> None:
    model = named(family, *names)
    adopt_labels(model, task_of(*MNLI))
    assert tuple(model.config.id2label.values()) == after
    assert model.config.label2id["neutral"] == after.index("neutral")
    assert label_names(model, task_of(*MNLI)) == after
