"""Times are compared within a round, and rounds are whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offramp.bench.timing import ENOUGH_FOR_P95, Rounds, interleave


def rounds_of(**seconds: list[list[float]]) -> Rounds:
    """Of each contestant, its batches in each round."""
    names = list(seconds)
    return Rounds([dict(zip(names, one, strict=True)) for one in zip(*seconds.values(), strict=True)])


class Pretended:
    """A clock that moves only when somebody works, rests or is waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def __call__(self) -> float:
        return self.now

    def rest(self, seconds: float) -> None:
        self.now += seconds

    def work(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.order.append(name)
            self.now += seconds

        return run


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """The machine slows down threefold in one round: medians of times would say 3, the ratio of sums 2.2."""
    rounds = rounds_of(slow=[[2.0, 2.0], [6.0, 6.0], [3.0, 3.0]], fast=[[1.0, 1.0], [3.0, 3.0], [1.0, 1.0]])
    assert rounds.ratio("slow", "fast") == pytest.approx(2.0)
    assert rounds.ratio("fast", "slow") == pytest.approx(0.5)
    assert rounds.rate("slow", rows=12) == pytest.approx(2.0)


def test_latency_is_of_batches() -> None:
    rounds = rounds_of(one=[[0.1, 0.3], [0.2, 0.9]])
    assert rounds.latency("one") == (pytest.approx(0.25), None)
    many = rounds_of(one=[[float(second) for second in range(ENOUGH_FOR_P95 + 1)]])
    assert many.latency("one") == (pytest.approx(10.0), pytest.approx(19.0))


def test_the_fastest_leads_everybody() -> None:
    """By its median time `lucky` would win; in two rounds of three, `steady` beats it."""
    rounds = rounds_of(lucky=[[1.0], [2.0], [9.0]], steady=[[0.9], [3.0], [8.0]], slow=[[2.0], [9.0], [9.5]])
    assert rounds.fastest(["lucky", "steady", "slow"]) == "steady"
    assert rounds.fastest(["slow"]) == "slow"


def test_everybody_has_a_turn_in_each_round_and_the_first_changes() -> None:
    clock, rounds = Pretended(), Rounds()
    turns = {"a": [clock.work("a", 1.0)], "b": [clock.work("b", 2.0), clock.work("b", 3.0)]}
    interleave(turns, rounds, seconds=100, most_rounds=2, pause=10.0, clock=clock, rest=clock.rest)
    assert clock.order == ["a", "b", "b", "b", "b", "a"]
    assert rounds.rounds == [{"a": [1.0], "b": [2.0, 3.0]}] * 2, "rests are not timed"


@pytest.mark.parametrize(("seconds", "least", "expected"), [(0, 1, 1), (0, 3, 3), (5, 1, 3), (100, 1, 4)])
def test_rounds_end_with_the_time(seconds: float, least: int, expected: int) -> None:
    clock, rounds = Pretended(), Rounds()
    turns = {"a": [clock.work("a", 2.0)]}
    interleave(turns, rounds, seconds, 4, least_rounds=least, pause=0, clock=clock, rest=clock.rest)
    assert len(rounds) == expected


def test_what_is_interrupted_is_no_round() -> None:
    clock, rounds = Pretended(), Rounds()

    def stop_later() -> None:
        if len(rounds) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interleave({"a": [clock.work("a", 1.0)], "b": [stop_later]}, rounds, 100, 9, clock=clock, rest=clock.rest)
    assert len(rounds) == 2
    assert set(rounds.rounds[-1]) == {"a", "b"}
