"""DeeBERT's .npy files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from offramp import OfframpError
from offramp.evaluation.legacy_arrays import write_legacy_arrays
from tests.evaluation.made_traces import random_trace


def test_layout(tmp_path: Path) -> None:
    trace = random_trace(metrics=("accuracy", "f1"))
    write_legacy_arrays(trace, tmp_path / "plots")
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"each_layer.npy", "entropy_0.0.npy", "entropy_0.15.npy", "entropy_0.7.npy"} <= names
    assert len(names) == 14
    counts, seconds, ratio, score = np.load(tmp_path / "plots" / "entropy_0.3.npy", allow_pickle=True)
    point = trace.point("entropy(0.3)")
    assert counts == point.exits
    assert (seconds, ratio, score) == (2.0 * point.cost, point.cost, point.scores["f1"])
    each = np.load(tmp_path / "plots" / "each_layer.npy")
    assert each.tolist() == [one.scores["f1"] for one in trace.scores()]


@pytest.mark.parametrize("settings", [{"labelled": False}, {"classes": 1}])
def test_what_they_cannot_hold(settings: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="labelled classification"):
        write_legacy_arrays(random_trace(**settings), tmp_path)
