"""CUDA graphs that often follow each other become one; what is done, and in which order, does not change by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from offramp.engine.graphs.captured import OFTEN, Captured


class Recorded(Captured):
    """Notes what would be captured, and what replaying it does."""

    def __init__(self) -> None:
        super().__init__(())
        self.done: list[str] = []
        self.replays: list[list[str]] = []
        self.captures = 0
        self.most = 99
        """Parts of a graph that can be captured."""

    def _capture(self, build: Callable[[], object]) -> Any:
        self.captures += 1
        before, self.done = self.done, []
        build()
        captured, self.done = self.done, before
        if len(captured) > self.most:
            raise RuntimeError("operation failed due to a previous error during capture")
        return Replay(self, captured)

    def run(self, *parts: str) -> None:
        for part in parts:
            self.launch(part, lambda part=part: self.done.append(part))  # type: ignore[misc]


class Replay:
    def __init__(self, graphs: Recorded, captured: list[str]) -> None:
        self.graphs, self.captured = graphs, captured

    def replay(self) -> None:
        self.graphs.done += self.captured
        self.graphs.replays.append(self.captured)


def test_a_graph_is_captured_once() -> None:
    graphs = Recorded()
    graphs.run("a", "b", "a", "a")
    assert graphs.done == ["a", "b", "a", "a"]
    assert graphs.captures == 2


def test_what_is_often_launched_together_becomes_one_graph() -> None:
    graphs = Recorded()
    for time in range(OFTEN + 2):
        graphs.run("first")
        with graphs.as_one():
            graphs.run("a", "b", "c")
            assert graphs.done[-1] == "first"  # nothing before the end
        assert graphs.done == ["first", "a", "b", "c"] * (time + 1)
    assert graphs.replays[:4] == [["first"], ["a"], ["b"], ["c"]]
    assert graphs.replays[-2:] == [["first"], ["a", "b", "c"]]
    assert graphs.captures == 5
    with graphs.as_one():  # another way, of parts that are known
        graphs.run("a", "c")
    assert graphs.done[-2:] == ["a", "c"]
    assert graphs.captures == 5


def test_parts_that_cannot_become_one_graph_are_launched_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    graphs = Recorded()
    graphs.most = 1
    for time in range(OFTEN + 3):
        with graphs.as_one():
            graphs.run("a", "b")
        assert graphs.done == ["a", "b"] * (time + 1)
    assert graphs.captures == 3, "it is tried once"
    assert caplog.text.count("stay CUDA graphs of their own") == 1


def test_one_part_is_not_captured_twice() -> None:
    graphs = Recorded()
    for _ in range(OFTEN + 1):
        with graphs.as_one():
            graphs.run("a")
    assert graphs.captures == 1


def test_what_was_interrupted_is_not_launched() -> None:
    graphs = Recorded()

    def interrupted() -> None:
        with graphs.as_one():
            graphs.run("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert graphs.done == []
    graphs.run("b")
    assert graphs.done == ["b"]
