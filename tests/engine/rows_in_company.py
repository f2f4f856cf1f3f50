"""Models, policies and rows to run in any company, and what the engine answers to each row alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from offramp.engine import Engine, RowAnswer
from offramp.engine.waves import Layers, Route
from offramp.policies import Scripted
from tests.engine.test_rows import ROWS
from tests.exiting_models import MODELS
from tests.policies.matrix import MATRIX

FAMILIES = ("bert", "albert")
BACKENDS = ("torch", "onnx")
POLICIES = [n for n, row in MATRIX.items() if row.task == "classification" and not isinstance(row.policy, Scripted)]


@cache
def engine_of(family: str, backend: str) -> Engine:
    return Engine(MODELS[family, "classification"], "fixed(5)", "cpu", "fp32", backend, threads=2)


@cache
def expected(family: str, backend: str, policy: str) -> list[RowAnswer]:
    engine = Engine(MODELS[family, "classification"], MATRIX[policy].policy, "cpu", "fp32", backend, threads=1)
    return [next(iter(engine.answer_rows([row]))) for row in ROWS]


@cache
def route_of(family: str, policy: str) -> Route:
    return Route(MODELS[family, "classification"], MATRIX[policy].policy)


def layers_of(family: str, backend: str = "torch") -> Any:
    return engine_of(family, backend).runner.layers  # type: ignore[attr-defined]


def check(family: str, backend: str, asked: dict[int, tuple[str, int]], found: dict[int, tuple[int, Any]]) -> None:
    assert found.keys() == asked.keys()
    for ticket, (policy, number) in asked.items():
        right = expected(family, backend, policy)[number]
        assert found[ticket][0] == right.exit, (policy, number)
        np.testing.assert_allclose(found[ticket][1], right.logits, rtol=1e-4, atol=1e-4)


class Watched(Layers):
    """Layers that tell which rows they run."""

    def __init__(self, layers: Layers, before: Callable[[int, Sequence[Any]], None]) -> None:
        self.layers = layers
        self.before = before

    def embed(self, rows: Any) -> list[Any]:
        return self.layers.embed(rows)

    def layer(self, index: int, hidden: Sequence[Any], then: Sequence[int]) -> list[Any]:
        self.before(index, hidden)
        return self.layers.layer(index, hidden, then)

    def exit(self, exit: int, hidden: Sequence[Any]) -> Any:
        return self.layers.exit(exit, hidden)

    def lane(self) -> Watched:
        return Watched(self.layers.lane(), self.before)  # type: ignore[attr-defined]

    @property
    def threads(self) -> int:
        return int(self.layers.threads)  # type: ignore[attr-defined]
