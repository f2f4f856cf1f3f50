"""Policies inside a graph decide as their own `step` does, on any logits; a graph is used wherever it can be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.engine import Engine
from offramp.engine.onnx.graph import Graph
from offramp.engine.onnx.rules import has_rule
from offramp.engine.onnx.sessions import open_session
from offramp.engine.onnx.whole_rows import OUTPUTS, OnnxRunner, WholeWay, starts
from offramp.engine.waves import Route
from offramp.policies import REGISTRY, Confidence, Entropy, Patience, Policy, Scripted, State, Window, first_exit
from tests.engine.test_rows import ROWS
from tests.exiting_models import MODELS
from tests.policies.matrix import MATRIX, SAMPLES, SCRIPT

EXITS = 5
MORE: dict[str, tuple[Policy, int]] = {
    "scripted or certain": (Scripted(SCRIPT) | Entropy(0.3), 2),
    "two scripts": (Scripted(SCRIPT) & (Scripted(SCRIPT[::-1]) | Patience(1)), 3),
    "never": (Window(EXITS + 1) | Window(EXITS + 2, "trend"), 2),
    "never with others": (Window(EXITS + 1) & Confidence(0.1), 2),
    "a window of one": (Window(1, "trend", margin=0.2), 3),
}
"""Beyond the matrix: the policy, and how many labels."""
CASES = {
    f"{name}, {labels}": (row.policy, labels)
    for name, row in MATRIX.items()
    if row.task != "span" and has_rule(row.policy)
    for labels in row.classes
} | MORE


@dataclass(frozen=True)
class Rehearsal:
    """In place of a model: what every exit will say, (1, E, C), goes through layers that do nothing."""

    model: SimpleNamespace
    width: int
    int8: bool = False

    def add_layer(self, graph: Graph, index: int, hidden: str) -> str:
        return graph.add("Identity", hidden)

    def add_exit(self, graph: Graph, exit: int, hidden: str) -> str:
        return graph.add("Gather", hidden, graph.weight(np.array(exit)), axis=1)


@cache
def session_of(name: str) -> Any:
    policy, labels = CASES[name]
    model = SimpleNamespace(
        outputs=labels,
        objective=SimpleNamespace(name="classification"),
        exits=SimpleNamespace(layers=tuple(range(1, EXITS + 1))),
        backbone=SimpleNamespace(depth=EXITS),
    )
    way = WholeWay(cast(Any, Rehearsal(model, labels)), Route(cast(Any, model), policy))
    return open_session(way.model, threads=1)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_decisions(name: str, data: st.DataObject) -> None:
    """Coarse numbers, so that answers tie and repeat; and huge ones."""
    policy, labels = CASES[name]
    numbers = st.one_of(st.integers(-8, 8).map(lambda n: n / 4), st.sampled_from([-1e30, 1e30, 100.0, -100.0]))
    size = EXITS * SAMPLES * labels
    drawn = data.draw(st.lists(numbers, min_size=size, max_size=size))
    trace = torch.tensor(drawn).reshape(EXITS, SAMPLES, labels)
    task = "regression" if labels == 1 else "classification"
    expected = first_exit(policy, trace, task=task)
    begun = starts(policy.start(torch.arange(SAMPLES)))
    for sample, exit in enumerate(expected.tolist()):
        feed = {start: each[sample : sample + 1] for start, each in begun.items()}
        said = session_of(name).run(OUTPUTS, {"hidden": trace[None, :, sample].numpy(), **feed})
        assert int(said[1][0]) == exit
        np.testing.assert_array_equal(said[0][0], trace[exit, sample].numpy())


class TestWhere:
    """What is run whole, and what layer by layer."""

    @pytest.mark.parametrize("family", ["bert", "roberta", "albert", "elasticbert"])
    def test_whole(self, family: str) -> None:
        assert self.most_whole(family, Entropy(0.4) | Patience(2)) is None

    @pytest.mark.parametrize(
        ("family", "limit", "rows"), [("bert", "IN_CACHE", 1), ("bert", "GRAPH_BYTES", 0), ("albert", "IN_CACHE", 0)]
    )
    def test_of_a_large_model(self, family: str, limit: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Single rows, unless the graph would be too large, or hold the same weights many times."""
        monkeypatch.setattr(f"offramp.engine.onnx.whole_rows.{limit}", 100)
        assert self.most_whole(family, Entropy(0.4)) == rows

    def test_policies_that_were_published(self) -> None:
        assert all(map(has_rule, (Entropy(0.1), Patience(2), Entropy(0.1, normalised=True) | Window(8))))

    @pytest.mark.parametrize(
        ("family", "task", "policy", "record"),
        [
            ("bert", "span", Patience(2), False),
            ("bert", "classification", Entropy(0.4), True),
        ],
    )
    def test_by_layers(self, family: str, task: str, policy: Policy, record: bool) -> None:
        assert self.most_whole(family, policy, task, record) == 0

    def test_a_rule_of_ones_own(self) -> None:
        class Own(Entropy):
            pass

        try:
            assert not has_rule(Patience(1) | Own(0.4))
            assert self.most_whole("bert", Own(0.4)) == 0
        finally:
            del REGISTRY[Own.name]

    @staticmethod
    def most_whole(family: str, policy: Policy, task: str = "classification", record: bool = False) -> int | None:
        engine = Engine(MODELS[family, task], policy, "cpu", "fp32", "onnx", threads=1, record=record)
        assert isinstance(engine.runner, OnnxRunner)
        return engine.runner.most_whole


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("rows", [1, len(ROWS)])
def test_whole_is_as_by_layers(rows: int, precision: str) -> None:
    """To the last bit: the same nodes, in one graph or in several calls."""
    engine = Engine(MODELS["bert", "classification"], Entropy(0.4131), "cpu", precision, "onnx", threads=2)
    assert isinstance(engine.runner, OnnxRunner)
    whole = list(engine.answer_rows(ROWS[:rows]))
    engine.runner.most_whole = 0
    for one, other in zip(whole, engine.answer_rows(ROWS[:rows]), strict=True):
        assert one.exit == other.exit
        np.testing.assert_array_equal(one.logits, other.logits)


def test_a_step_wakes_no_second_thread() -> None:
    """Rows are on all cores already: a thread of torch's has to wait for one of them."""
    seen = []

    class Watching(Entropy):
        def step(self, layer: int, logits: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
            seen.append(torch.get_num_threads())
            return super().step(layer, logits, state)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        list(Engine(MODELS["bert", "classification"], Watching(0.4), "cpu", "fp32", "onnx").answer_rows(ROWS))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        del REGISTRY[Watching.name]
    assert set(seen) == {1}
