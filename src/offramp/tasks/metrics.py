"""How answers are scored, as fractions: the usual metrics.

Labels are counted here: scikit-learn spends milliseconds on looking at its input, and a sweep asks thousands of times.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from offramp.errors import OfframpError

Array = npt.NDArray[Any]


def predictions_of(logits: Array) -> Array:
    """The answers logits (..., C) stand for: the best label's number, or the number itself where C is 1."""
    logits = np.asarray(logits)
    return logits[..., 0] if logits.shape[-1] == 1 else logits.argmax(-1)


def accuracy(predictions: Array, labels: Array) -> float:
    return float((predictions == labels).mean())


def f1(predictions: Array, labels: Array) -> float:
    """F1 of label number 1, for tasks with two labels; 0 where nobody says or has it."""
    said, true = predictions == 1, labels == 1
    return _f1_of(np.array([(said & true).sum()]), np.array([said.sum() + true.sum()]))


def macro_f1(predictions: Array, labels: Array) -> float:
    """Mean over the labels that occur, or are said, of each one's F1."""
    counts = _counts(predictions, labels)
    return _f1_of(counts.right, counts.said + counts.true)


def matthews(predictions: Array, labels: Array) -> float:
    """Matthews' correlation, of any number of labels; 0 where all predictions, or all labels, are the same."""
    right, said, true = (values.astype(np.float64) for values in _counts(predictions, labels))
    rows = float(len(labels))
    spread = (rows**2 - said @ said) * (rows**2 - true @ true)
    return float((right.sum() * rows - said @ true) / np.sqrt(spread)) if spread > 0 else 0.0


class _Counts(NamedTuple):
    """For each label that occurs: how often it was said and right, said, and true."""

    right: Array
    said: Array
    true: Array


def _counts(predictions: Array, labels: Array) -> _Counts:
    known, places = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    said, true = places[: len(labels)], places[len(labels) :]
    return _Counts(*(np.bincount(these, minlength=len(known)) for these in (said[said == true], said, true)))


def _f1_of(right: Array, said_and_true: Array) -> float:
    """2 right / (said + true), the mean; 0 for a label that is neither said nor true."""
    return float((2 * right / np.maximum(said_and_true, 1)).mean())


def pearson(predictions: Array, labels: Array) -> float:
    return _correlation("pearsonr", predictions, labels)


def spearman(predictions: Array, labels: Array) -> float:
    return _correlation("spearmanr", predictions, labels)


def accuracy_f1(predictions: Array, labels: Array) -> float:
    return (accuracy(predictions, labels) + f1(predictions, labels)) / 2


def pearson_spearman(predictions: Array, labels: Array) -> float:
    return (pearson(predictions, labels) + spearman(predictions, labels)) / 2


LABEL_METRICS: dict[str, Callable[[Array, Array], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "accuracy_f1": accuracy_f1,
}
NUMBER_METRICS: dict[str, Callable[[Array, Array], float]] = {
    "pearson": pearson,
    "spearman": spearman,
    "pearson_spearman": pearson_spearman,
}
METRICS = LABEL_METRICS | NUMBER_METRICS


def score(metric: str, predictions: Any, labels: Any) -> float:
    """One metric of answers: label numbers, or real numbers in regression. A fraction (0.905, not 90.5)."""
    if metric not in METRICS:
        raise OfframpError(f"metric {metric!r}: expected one of {', '.join(METRICS)}")
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or not len(labels):
        raise OfframpError(f"{metric} of {predictions.shape} predictions and {labels.shape} labels: they must match")
    return METRICS[metric](predictions, labels)


def _correlation(name: str, predictions: Array, labels: Array) -> float:
    """0 where one side is constant, and the correlation therefore undefined."""
    x, y = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    with warnings.catch_warnings():  # scipy warns of nearly constant input
        warnings.simplefilter("ignore")
        value = float(getattr(import_module("scipy.stats"), name)(x, y)[0])
    return value if np.isfinite(value) else 0.0
