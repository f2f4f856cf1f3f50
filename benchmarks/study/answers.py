"""What static models answered on dev, in few bytes: enough to put two of them one behind the other."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.evaluation.trace import Trace
from offramp.policies import entropy

LEVELS = 64
"""Steps of certainty that are told apart, each with as many rows."""


def packed(numbers: NDArray[Any], kind: str) -> str:
    """An array as text."""
    return base64.b64encode(zlib.compress(np.asarray(numbers).astype(kind).tobytes(), 9)).decode()


def unpacked(text: str, kind: str) -> NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=kind)


def certainty_levels(trace: Trace) -> NDArray[np.int64]:
    """By entropy, 0 the most certain: (N,)."""
    unsure = entropy(trace.tensor[-1]).numpy()
    place = np.argsort(np.argsort(unsure, kind="stable"), kind="stable")
    return place * LEVELS // len(unsure)


def as_task_numbers(trace: Trace, answers: NDArray[Any]) -> NDArray[Any]:
    """A model's labels by the task's numbers; real numbers as they are."""
    return np.asarray(trace.task_numbers)[answers] if trace.task_numbers else answers


def answers_of(trace: Trace, whole: bool) -> dict[str, str]:
    """Predictions of the last exit (label numbers; fp16 in regression); and, of a model that another can follow, how
    certain each is. The model with all layers (`whole`) keeps the true answers and the lengths for the others.
    """
    number, truth = ("<f2", "<f4") if trace.kind == "regression" else ("u1", "u1")
    last = trace.all_at(len(trace.exit_layers) - 1)
    found = {"predictions": packed(as_task_numbers(trace, trace.predictions(last)), number)}
    if whole:
        found["labels"] = packed(as_task_numbers(trace, trace.labels), truth)
        found["lengths"] = packed(trace.lengths, "<u2")
    elif trace.kind == "classification":
        found["levels"] = packed(certainty_levels(trace), "u1")
    return found
