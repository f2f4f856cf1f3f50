"""A task's labels and a model's: the same answers, not always in the same order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.tasks.benchmarks import NLI
from offramp.tasks.task import Examples, Task

MEANINGS = {
    "elue/snli": ("entailment", "neutral", "contradiction"),
    "glue/wnli": ("not_entailment", "entailment"),
    **dict.fromkeys(("glue/sst-2", "elue/sst-2", "elue/imdb"), ("negative", "positive")),
    **dict.fromkeys(("glue/mrpc", "elue/mrpc"), ("not_equivalent", "equivalent")),
    "glue/qqp": ("not_duplicate", "duplicate"),
    "glue/cola": ("unacceptable", "acceptable"),
}
"""What the numbers of a benchmark stand for, where models with names for them are about."""
ROBERTA_MNLI = ("contradiction", "neutral", "entailment")
"""The order in which RoBERTa was first trained on MNLI, and in which all its models since are."""


def label_order(model: MultiExitModel, task: Task) -> list[int]:
    """For each label of the task, the number the model gives it; nothing for regression.

    The names in the model's configuration decide. Where it has none (`LABEL_0`), or the task's labels are mere numbers,
    the order is the task's own; for RoBERTa on MNLI, RoBERTa's.
    """
    wanted = len(task.labels) or 1
    if model.outputs != wanted or model.objective.name != task.kind:
        answers = f"{wanted} labels ({', '.join(task.labels)})" if task.labels else "a number"
        says = {"regression": "a number", "span": "a span"}.get(model.objective.name, f"one of {model.outputs} labels")
        raise OfframpError(f"{task.name} asks for {answers}, but the model answers with {says}")
    names, labels = model_labels(model), task.labels
    if names is not None and _are_numbers(labels):
        meaning = MEANINGS.get(task.name, labels)
        if _places(meaning, names) is not None or len(names) > 2:
            labels = meaning
        else:
            names = None  # of two, 1 is the second
    found = _places(labels, names or _usual_order(model, task))
    if found is None:
        raise OfframpError(
            f"the labels of {task.name} are {', '.join(labels)}, but the model's are {', '.join(names or ())}: "
            "put the task's names into id2label of the model's config.json"
        )
    return found


def _places(labels: Sequence[str], names: Sequence[str]) -> list[int] | None:
    """Where each label stands among the names: as written or, where that leaves no doubt, in upper or lower case."""
    for spelt in (str, str.lower):
        place = {spelt(name): number for number, name in enumerate(names)}
        if len(place) == len(names) and place.keys() == {spelt(label) for label in labels}:
            return [place[spelt(label)] for label in labels]
    return None


def model_labels(model: MultiExitModel) -> tuple[str, ...] | None:
    """The names in the model's configuration, in its order; None where nobody gave it any."""
    known: dict[Any, Any] = model.config.id2label or {}
    names = tuple(str(known[number]) for number in sorted(known))
    generic = all(re.fullmatch(r"LABEL_\d+", name) for name in names) or _are_numbers(names)
    return None if generic or len(set(names)) != model.outputs else names


def in_model_order(model: MultiExitModel, task: Task, examples: Examples) -> list[int] | list[float]:
    """The examples' labels as the model numbers them; real numbers as they are."""
    order = label_order(model, task)
    if examples.labels is None:
        raise OfframpError(f"{examples.source} has no labels")
    if not task.labels:
        return examples.labels
    return [order[int(label)] for label in examples.labels]


def task_numbers(model: MultiExitModel, task: Task) -> tuple[int, ...]:
    """For each label of the model, its number in the task: F1 is of the task's label 1, whatever the model calls it."""
    order = label_order(model, task)
    return tuple(order.index(number) for number in range(len(order)))


def label_names(model: MultiExitModel, task: Task) -> tuple[str, ...]:
    """The task's labels in the model's order."""
    return tuple(task.labels[number] for number in task_numbers(model, task))


def adopt_labels(model: MultiExitModel, task: Task) -> None:
    """Before training: the model's labels are the task's from now on, in the model's order if it had them already."""
    if not task.labels:
        return
    try:
        names = label_names(model, task)
    except OfframpError:
        names = _usual_order(model, task)
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {name: number for number, name in enumerate(names)}


def _usual_order(model: MultiExitModel, task: Task) -> tuple[str, ...]:
    is_roberta = model.config.backbone_config.model_type == "roberta"
    return ROBERTA_MNLI if is_roberta and task.labels == NLI else task.labels


def _are_numbers(labels: tuple[str, ...]) -> bool:
    return labels == tuple(map(str, range(len(labels))))
