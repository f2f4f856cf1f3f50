"""Sessions of ONNX Runtime: weights beside a graph, or in it where no file can be written."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.engine import Engine
from offramp.engine.onnx import sessions
from offramp.engine.onnx.graph import Graph, WeightsFile
from offramp.engine.onnx.sessions import open_session

WIDTH, DEPTH = 64, 6
WEIGHTS = np.random.default_rng(0).normal(size=(DEPTH, WIDTH, WIDTH)).astype(np.float32)
GIVEN = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)


def nested(graph: Graph) -> bytes:
    """A product in a branch in a branch …, and an early way out of each."""
    given = graph.input("given", ("n", WIDTH))
    (made,) = further(graph, given, 0)
    graph.output("made", made, ("n", WIDTH))
    return graph.model()


def further(graph: Graph, given: str, depth: int) -> list[str]:
    if depth == DEPTH:
        return [graph.add("Identity", given)]
    product = graph.add("Tanh", graph.add("MatMul", given, graph.weight(WEIGHTS[depth])))
    total = graph.add("ReduceSum", product, keepdims=0)
    early, onward = graph.inner(f"early{depth}"), graph.inner(f"onward{depth}")
    leaves = graph.add("Greater", total, graph.number(1e9))
    gone = early.branch([early.add("Identity", product)])
    return graph.either(leaves, gone, onward.branch(further(onward, product, depth + 1)))


def run(session: Any) -> np.ndarray:
    made: np.ndarray = session.run(None, {"given": GIVEN})[0]
    return made


def no_place(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_weights_beside_a_graph_are_those_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    beside = run(open_session(nested, threads=1))
    assert not list(tmp_path.iterdir())  # the file is gone
    monkeypatch.setattr(sessions.tempfile, "TemporaryDirectory", no_place)
    np.testing.assert_array_equal(run(open_session(nested, threads=1)), beside)


def test_a_graph_holds_nothing_of_what_lies_beside_it(tmp_path: Path) -> None:
    with (tmp_path / WeightsFile.NAME).open("wb") as file:
        written = nested(Graph(beside=WeightsFile(file)))
    assert len(written) < WEIGHTS[0].nbytes
    assert WEIGHTS.nbytes <= (tmp_path / WeightsFile.NAME).stat().st_size < WEIGHTS.nbytes * 1.1
    assert len(nested(Graph())) > WEIGHTS.nbytes


def test_where_weights_begin(tmp_path: Path) -> None:
    with (tmp_path / WeightsFile.NAME).open("wb") as file:
        beside = WeightsFile(file)
        values = [np.full(size, size % 128, np.int8) for size in (1024, 4096, 3008, 64, 1, 5000)]
        tensors = [beside.add(value, "weight") for value in values]
    found = (tmp_path / WeightsFile.NAME).read_bytes()
    for tensor, value in zip(tensors, values, strict=True):
        place = {entry.key: entry.value for entry in tensor.external_data}
        start, size = int(place["offset"]), int(place["length"])
        assert start % WeightsFile.APART == 0
        np.testing.assert_array_equal(np.frombuffer(found[start : start + size], np.int8), value)


def test_a_full_disk_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(WeightsFile):
        def add(self, value: Any, name: str) -> Any:
            if self.file.tell() > 4096:
                no_place()
            return super().add(value, name)

    texts = ["a fine film", "a clumsy, tiresome film that wastes a good cast"]

    def answers() -> list[Any]:
        engine = Engine("offramp-mini-sst2", device="cpu", precision="fp32", backend="onnx")
        return [(answer.label, answer.score, answer.exit_layer) for answer in engine(texts)]

    expected = answers()
    monkeypatch.setattr(sessions, "WeightsFile", FullDisk)
    assert answers() == expected
