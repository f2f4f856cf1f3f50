"""Which label of the data is which of the model's: by name or by number, and never by guessing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.tasks.labels import in_model_order, label_names, model_labels
from offramp.tasks.rows import some_of
from offramp.tasks.task import Examples, Task

BETTER, AT_LEAST, ROWS = 0.1, 0.5, 20
"""Another order of the labels is the true one if the model is right so much more often, so often, on so many rows."""


def names_of(model: MultiExitModel) -> tuple[str, ...]:
    """The model's labels, in its order; `LABEL_0` and so on where nobody gave it names."""
    known: dict[Any, Any] = model.config.id2label or {}
    names = tuple(str(known.get(number, f"LABEL_{number}")) for number in range(model.outputs))
    return names if len(set(names)) == len(names) else tuple(f"LABEL_{number}" for number in range(model.outputs))


def as_written(names: Sequence[str], found: set[str], source: str) -> tuple[str, ...]:
    """How the data writes each of the model's labels, in the model's order; those it lacks as the model does."""
    numbers = tuple(map(str, range(len(names))))
    by_name = _by_name(names, found)
    by_number = numbers if "0" in found and found <= set(numbers) else None
    if by_name is not None and by_number is not None and by_name != by_number:
        raise OfframpError(
            f"{source}: the model's labels are numbers in another order ({some_of(names)}): say which is which with "
            f"--labels, the data's labels in the order of the model's outputs"
        )
    written = by_name or by_number
    if written is None:
        strange = sorted(found - set(names))[0] if found - set(names) else sorted(found)[0]
        raise OfframpError(
            f"{source}: label {strange!r} is none of the model's ({some_of(names)}), nor its number (0 to "
            f"{len(names) - 1}): name the data's labels in the model's order with --labels"
        )
    return written


def _by_name(names: Sequence[str], found: set[str]) -> tuple[str, ...] | None:
    """As written or, where that leaves no doubt, in upper or lower case."""
    for spelt in (str, str.lower):
        written = {spelt(label): label for label in found}
        known = {spelt(name) for name in names}
        if len(written) == len(found) and len(known) == len(names) and written.keys() <= known:
            return tuple(written.get(spelt(name), name) for name in names)
    return None


def given_labels(labels: Sequence[str], names: Sequence[str], found: set[str], source: str) -> tuple[str, ...]:
    """What the user says they are, in the model's order."""
    if len(labels) != len(names) or len(set(labels)) != len(labels):
        raise OfframpError(f"--labels {','.join(labels)}: expected {len(names)}, one for each of {some_of(names)}")
    if strange := sorted(found - set(labels)):
        raise OfframpError(f"{source}: label {strange[0]!r} is none of --labels {','.join(labels)}")
    return tuple(labels)


def adopt_names(model: MultiExitModel, written: Sequence[str]) -> tuple[str, ...]:
    """The model's own names; a model without any takes those that the user gave."""
    if model_labels(model) is not None or set(written) == set(map(str, range(model.outputs))):
        return names_of(model)
    model.config.id2label = dict(enumerate(written))
    model.config.label2id = {name: number for number, name in enumerate(written)}
    return tuple(written)


def refuse_other_order(model: MultiExitModel, task: Task, examples: Examples, logits: NDArray[np.float32]) -> None:
    """A model that is mostly wrong, and would be right with its labels in another order, was matched wrongly."""
    answers, labels = logits.argmax(-1), np.asarray(in_model_order(model, task, examples), np.int64)
    counts = np.zeros((model.outputs, model.outputs), np.int64)
    np.add.at(counts, (answers, labels), 1)
    outputs, best = linear_sum_assignment(counts, maximize=True)
    rows, now, then = len(labels), counts.trace(), counts[outputs, best].sum()
    if then - now < max(BETTER * rows, ROWS) or then < AT_LEAST * rows:
        return
    written = task.record.get("written") or label_names(model, task)
    is_now = ", ".join(f"{label} is {name}" for label, name in zip(written, names_of(model), strict=True))
    other = [written[number] for number in best]
    own = "labels" in task.record
    cure = f"--labels {','.join(other)}" if own else f"so in id2label of the model's config.json ({', '.join(other)})"
    raise OfframpError(
        f"{examples.source}: the model is right on {100 * now / rows:.1f} % of the rows where {is_now}, and would be "
        f"on {100 * then / rows:.1f} % with the labels in another order: if that is the true one, say {cure}"
    )
