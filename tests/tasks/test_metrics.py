"""Metrics against small cases worked out by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, matthews_corrcoef

from offramp.errors import OfframpError
from offramp.tasks.metrics import METRICS, predictions_of, score

BY_HAND = [
    ("accuracy", [1, 0, 1, 1], [1, 0, 0, 1], 0.75),
    ("f1", [1, 0, 1, 1], [1, 0, 0, 1], 0.8),  # precision 2/3, recall 1
    ("accuracy_f1", [1, 0, 1, 1], [1, 0, 0, 1], 0.775),
    ("macro_f1", [1, 0, 1, 1], [1, 0, 0, 1], (0.8 + 2 / 3) / 2),
    ("macro_f1", [0, 1, 2, 2], [0, 1, 2, 1], (1 + 2 / 3 + 2 / 3) / 3),
    ("matthews", [1, 0, 1, 1], [1, 0, 0, 1], 1 / np.sqrt(3)),  # (2·1 − 1·0)/√(3·2·2·1)
    ("pearson", [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], 3 / np.sqrt(2 * 14 / 3)),
    ("spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 40.0], 1.0),
    ("pearson_spearman", [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], (3 / np.sqrt(2 * 14 / 3) + 1) / 2),
]


@pytest.mark.parametrize(("metric", "predictions", "labels", "value"), BY_HAND)
def test_by_hand(metric: str, predictions: list[float], labels: list[float], value: float) -> None:
    assert score(metric, predictions, labels) == pytest.approx(value)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("predictions", "labels"), [([0, 0, 0], [0, 1, 1]), ([0, 1, 1], [0, 0, 0]), ([0, 0, 0], [0, 0, 0]), ([1], [1])]
)
def test_constant_answers(metric: str, predictions: list[int], labels: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = score(metric, predictions, labels)
    assert np.isfinite(value)
    if metric in ("matthews", "pearson", "spearman", "pearson_spearman"):
        assert value == 0.0


LABELS = st.integers(1, 4).flatmap(
    lambda kinds: st.lists(st.tuples(*[st.integers(0, kinds)] * 2), min_size=1, max_size=40)
)


@given(LABELS)
def test_what_counts_labels_is_scikit_learn_s(rows: list[tuple[int, int]]) -> None:
    predictions, labels = (np.array(side) for side in zip(*rows, strict=True))
    two = (predictions.clip(0, 1), labels.clip(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one label only
        macro = f1_score(labels, predictions, average="macro", zero_division=0.0)
        correlation = matthews_corrcoef(labels, predictions) if len(rows) > 1 else 0.0
        of_one = f1_score(two[1], two[0], pos_label=1, zero_division=0.0)
    assert score("macro_f1", predictions, labels) == pytest.approx(macro, abs=1e-12)
    assert score("matthews", predictions, labels) == pytest.approx(correlation, abs=1e-12)
    assert score("f1", *two) == pytest.approx(of_one, abs=1e-12)


def test_predictions() -> None:
    logits = np.array([[[0.1, 0.9], [0.8, 0.2]], [[0.5, 0.4], [0.0, 3.0]]])  # (exits, samples, classes)
    assert predictions_of(logits).tolist() == [[1, 0], [0, 1]]
    assert predictions_of(np.array([[2.5], [1.0]])).tolist() == [2.5, 1.0]


def test_bad_input() -> None:
    with pytest.raises(OfframpError, match="metric 'f2': expected one of accuracy"):
        score("f2", [1], [1])
    with pytest.raises(OfframpError, match="they must match"):
        score("accuracy", [1, 2], [1])
    with pytest.raises(OfframpError, match="they must match"):
        score("accuracy", [], [])
