"""What a row is expected to take, by which requests are refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from offramp.serving import flow
from offramp.serving.flow import SMOOTHING, Flow
from offramp.serving.jobs import Job, Request

NOTHING: Any = None
WHOLE = round(1 / SMOOTHING)
"""Rows after which the mean is a moving one."""


def expected_after(times: Sequence[float], monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds that a row is expected to take after rows, one after the other, that took these."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(flow, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    async def ask() -> float:
        accepted: list[Request] = []
        it = Flow(10, accepted.append, lambda job: None)
        it.start(asyncio.get_running_loop())
        for took in times:
            asking = asyncio.create_task(it.through(["a"], NOTHING, NOTHING, True, None))
            await asyncio.sleep(0)
            clock.now += took
            it.deliver([Job(0, None, NOTHING, accepted[-1])])
            await asking
        return it.seconds_per_row

    return asyncio.run(ask())


@pytest.mark.parametrize("rows", [1, 2, 10, WHOLE])
def test_a_slow_first_row_is_one_of_many(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times = [30.0, *[0.01] * (rows - 1)]
    assert expected_after(times, monkeypatch) == pytest.approx(mean(times))


def test_later_the_last_rows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [0.01] * 2 * WHOLE + [1.0]
    assert expected_after(times, monkeypatch) == pytest.approx(0.01 + SMOOTHING * 0.99)
