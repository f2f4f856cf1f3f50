"""DeeBERT's .npy files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp import OfframpError
from offramp.engine import Engine
from offramp.evaluation.legacy_arrays import one_by_one, write_legacy_arrays
from offramp.policies import Entropy
from offramp.tasks.encoding import Row
from tests.evaluation.made_traces import random_trace
from tests.tiny import tiny_model


def test_layout(tmp_path: Path) -> None:
    trace = random_trace(metrics=("accuracy", "f1"))
    write_legacy_arrays(trace, tmp_path / "plots", lambda policy: 3.5)
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"each_layer.npy", "entropy_0.0.npy", "entropy_0.15.npy", "entropy_0.7.npy"} <= names
    assert len(names) == 14
    counts, seconds, ratio, score = np.load(tmp_path / "plots" / "entropy_0.3.npy", allow_pickle=True)
    point = trace.point("entropy(0.3)")
    assert counts == point.exits
    assert (seconds, ratio, score) == (3.5, point.cost, point.scores["f1"])
    each = np.load(tmp_path / "plots" / "each_layer.npy")
    assert each.tolist() == [one.scores["f1"] for one in trace.scores()]


@pytest.mark.parametrize("settings", [{"labelled": False}, {"classes": 1}])
def test_what_they_cannot_hold(settings: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="labelled classification"):
        write_legacy_arrays(random_trace(**settings), tmp_path, lambda policy: 1.0)


def test_the_kept_last_highway_adds_no_layer(tmp_path: Path) -> None:
    trace = random_trace(exits=4, exit_layers=(1, 2, 3, 3))
    write_legacy_arrays(trace, tmp_path, lambda policy: 1.0)
    each = np.load(tmp_path / "each_layer.npy")
    assert each.tolist() == [trace.scores()[exit].scores["accuracy"] for exit in (0, 1, 3)]
    counts = np.load(tmp_path / "entropy_0.7.npy", allow_pickle=True)[0]
    assert set(counts) == {1, 2, 3}


def test_seconds_are_measured_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    rows = [Row([2, 5, 6, 3], [0, 0, 0, 0]), Row([2, 7, 3], [0, 0, 0])]
    asked: list[int] = []
    answer_rows = Engine.answer_rows

    def slow(engine: Engine, rows: list[Row]) -> Any:
        asked.append(len(rows))
        time.sleep(0.05)
        return answer_rows(engine, rows)

    monkeypatch.setattr(Engine, "answer_rows", slow)
    took = one_by_one(model, rows, backend="torch")(Entropy(0.1))
    assert set(asked) == {1}
    assert 0.1 <= took < 5
