"""What is not calibrated on, and why."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from offramp.calibration.certify import METHODS
from offramp.calibration.losses import Loss
from offramp.errors import OfframpError, one_line
from offramp.evaluation.trace_base import TraceBase
from offramp.models import MultiExitModel
from offramp.tasks.squad import Questions
from offramp.tasks.task import Examples, Task
from offramp.tasks.trained import trained_task, training_record

log = logging.getLogger("offramp")

SEEN = 0.05
"""Share of the rows that may have been trained on, or be there twice: short texts are."""
SUSPICIOUS = 100
"""So many rows in a row that a model answers as they are labelled are no luck."""


def check_limits(limit: float, confidence: float, method: str) -> None:
    if not 0 < limit < 1:
        why = (
            "a policy that leaves early can never be shown to lose nothing at all" if limit == 0 else "1 is everything"
        )
        raise OfframpError(f"a limit of {limit:g}: expected a share between 0 and 1, such as 0.01 ({why})")
    if not 0 < confidence < 1:
        raise OfframpError(f"a confidence of {confidence:g}: expected a share between 0 and 1, such as 0.95")
    if method not in METHODS:
        raise OfframpError(f"method {method!r}: use one of {', '.join(METHODS)}")


def check_trace(trace: TraceBase, loss: Loss) -> None:
    if not np.isfinite(trace.logits).all():
        broken = int((~np.isfinite(trace.logits).all(axis=(0, 2))).sum())
        raise OfframpError(f"the model says NaN or infinity to {broken} of the rows: mend it before calibrating it")
    if not loss.needs_labels:
        return
    labels = getattr(trace, "labels", None)
    if labels is None or trace.kind != "classification":
        return
    if len(set(labels.tolist())) < 2:
        raise OfframpError(
            "all rows have the same label: what is lost on others cannot be seen; give rows of every label"
        )
    if len(labels) >= SUSPICIOUS and trace.right_at(None).all():
        raise OfframpError(
            f"full depth is right on all {len(labels):,} rows: these labels seem to be the model's own answers, or of "
            "rows it was trained on; use --consistency to compare with full depth, or other rows"
        )


def check_rows(model: MultiExitModel, task: Task, split: str) -> None:
    """Refuse rows that the model was trained on: on them it is surer of itself, at every exit, than on any others."""
    record = training_record(model)
    rows = task.split(split)
    again = OfframpError(
        f"{rows.source} is what the model was trained on: nothing that is found there holds for other rows; give rows "
        "that it has not seen"
    )
    if rows.digest() == record.get("trained_on"):
        raise again
    try:
        trained = trained_task(model).split("train")
    except OfframpError as error:  # moved, or not known
        if record.get("task"):
            why = one_line(error.__cause__ or error)
            log.warning("cannot tell whether %s holds rows that the model was trained on: %s", rows.source, why)
        return
    if trained.digest() == rows.digest():
        raise again
    check_unseen(trained, rows)


def check_unseen(trained: Examples | Questions, rows: Examples | Questions) -> None:
    """Refuse rows of which more than a few are among those trained on."""
    known = set(_keys(trained))
    seen = [key in known for key in _keys(rows)]
    if seen and sum(seen) / len(seen) > SEEN:
        raise OfframpError(
            f"{sum(seen):,} of the {len(seen):,} rows of {rows.source} are among those the model was trained on: leave "
            "them out, or nothing that is found holds for other rows"
        )


def distinct(rows: Examples | Questions, limit: int | None) -> NDArray[np.int64] | None:
    """The numbers of the first rows, each text once, where more than a few are there again; None where all may stay.

    A row that is there four times is no four witnesses: every test would take it for more than it says.
    """
    keys = _keys(rows)[:limit]
    first = {key: number for number, key in reversed(list(enumerate(keys)))}
    again = len(keys) - len(first)
    if again <= SEEN * len(keys):
        return None
    log.warning(
        "%s of the %s rows of %s are there more than once: each text counts once, in what is found and promised",
        f"{again:,}",
        f"{len(keys):,}",
        rows.source,
    )
    return np.array(sorted(first.values()))


def _keys(rows: Examples | Questions) -> list[tuple[str, str]]:
    if isinstance(rows, Questions):
        return [(question.question, question.context) for question in rows.questions]
    return list(zip(rows.texts, rows.pairs or [""] * len(rows.texts), strict=True))
