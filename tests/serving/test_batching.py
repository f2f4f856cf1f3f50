"""Rows that come in any order, under any policies: each gets the engine's answer, once, whoever it runs with."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.engine import Engine
from offramp.engine.onnx.whole_rows import OnnxRunner
from offramp.engine.runner import Finished, Packed
from offramp.engine.waves import Route, has_one_layer
from offramp.policies import Fixed
from offramp.serving.batching import Batcher, PoolBatcher, Report, RowBatcher
from offramp.serving.graph_batching import GraphBatcher
from offramp.serving.jobs import Job, Request
from tests.engine.rows_in_company import (
    BACKENDS,
    FAMILIES,
    POLICIES,
    Watched,
    check,
    expected,
    layers_of,
    route_of,
)
from tests.engine.test_rows import ROWS
from tests.exiting_models import MODELS
from tests.policies.matrix import MATRIX, SAMPLES


class Collected:
    """What a batcher reports."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.batches: list[tuple[int, int]] = []
        self.broken: list[BaseException] = []
        self.came = threading.Condition()

    def deliver(self, jobs: Sequence[Job]) -> None:
        with self.came:
            self.jobs += jobs
            self.came.notify_all()

    @property
    def report(self) -> Report:
        return Report(self.deliver, lambda rows, tokens: self.batches.append((rows, tokens)), self.broken.append)

    def wait_for(self, count: int) -> list[Job]:
        with self.came:
            assert self.came.wait_for(lambda: len(self.jobs) >= count, timeout=30), "jobs were lost"
        return self.jobs


WHOLE = "onnx, some in one call"
IN_ONE_CALL = POLICIES[::2]


def batcher_of(family: str, backend: str, collected: Collected, most_tokens: int = 64) -> Batcher:
    model, layers = MODELS[family, "classification"], layers_of(family, "onnx" if backend == WHOLE else backend)
    if backend == WHOLE:
        routes = [route_of(family, policy) for policy in IN_ONE_CALL]
        return RowBatcher(layers, collected.report, {one: OnnxRunner(model, one.policy, layers) for one in routes})
    if backend == "onnx":
        return RowBatcher(layers, collected.report)
    return PoolBatcher(layers, has_one_layer(model), most_tokens, collected.report)


@pytest.fixture(scope="module", params=[(family, backend) for family in FAMILIES for backend in BACKENDS], ids="-".join)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    family, backend = request.param
    return family, backend


def request_of(route: Route, deadline: float | None = None) -> Request:
    return Request([], None, route, True, None, 0.0, deadline)  # type: ignore[arg-type]


def job_of(family: str, ticket: int, number: int, policy: str = "entropy") -> Job:
    route = route_of(family, policy)
    return Job(ticket, ROWS[number], route, request_of(route))


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_batchers_answer_as_the_engine_does(kind: tuple[str, str], data: st.DataObject) -> None:
    check_batcher(*kind, data)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_rows_in_one_call_among_others(data: st.DataObject) -> None:
    check_batcher("bert", WHOLE, data)


def check_batcher(family: str, backend: str, data: st.DataObject) -> None:
    collected = Collected()
    batcher = batcher_of(family, backend, collected)
    batcher.start()
    asked: dict[int, tuple[str, int]] = {}
    try:
        for _ in range(data.draw(st.integers(1, 6))):
            jobs = []
            for _ in range(data.draw(st.integers(1, 8))):
                policy, number = data.draw(st.sampled_from(POLICIES)), data.draw(st.integers(0, SAMPLES - 1))
                asked[len(asked)] = policy, number
                jobs.append(job_of(family, len(asked) - 1, number, policy))
            batcher.put(jobs)
            time.sleep(data.draw(st.sampled_from([0.0, 0.002])))
        collected.wait_for(len(asked))
    finally:
        batcher.stop()
    assert len(collected.jobs) == len(asked)
    found: dict[int, tuple[int, Any]] = {}
    for job in collected.jobs:
        assert job.exit is not None, job.error
        found[job.ticket] = job.exit, job.logits
    check(family, "onnx" if backend == WHOLE else backend, asked, found)
    assert sum(tokens for _, tokens in collected.batches) > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_graphs_take_the_default_route_and_pools_the_others(backend: str) -> None:
    """With a runner on the host in the place of one on a GPU: what is held back comes once nothing more does."""
    collected = Collected()
    default = Route(MODELS["albert", "classification"], MATRIX["entropy"].policy)
    runner = Engine(MODELS["albert", "classification"], MATRIX["entropy"].policy, "cpu", "fp32", backend).runner
    batcher = GraphBatcher(runner, default, layers_of("albert"), True, 30, collected.report)
    jobs = [job_of("albert", ticket, ticket % SAMPLES, POLICIES[ticket % 5]) for ticket in range(60)]
    for job in jobs[::2]:
        job.route = default
    batcher.start()
    batcher.put(jobs[:40])
    batcher.put(jobs[40:])
    collected.wait_for(60)
    batcher.stop()
    names = {job.ticket: "entropy" if job.route is default else POLICIES[job.ticket % 5] for job in jobs}
    asked = {ticket: (name, ticket % SAMPLES) for ticket, name in names.items()}
    check("albert", "torch", asked, {job.ticket: (job.exit, job.logits) for job in collected.jobs})  # type: ignore[misc]


def test_a_runner_that_fails_loses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = Collected()
    default = Route(MODELS["bert", "classification"], MATRIX["entropy"].policy)
    runner = Engine(MODELS["bert", "classification"], MATRIX["entropy"].policy, "cpu", "fp32", "torch").runner

    def broken(rows: Any) -> Any:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(runner, "submit", broken)
    batcher = GraphBatcher(runner, default, layers_of("bert"), False, 30, collected.report)
    jobs = [Job(ticket, ROWS[ticket], default, request_of(default)) for ticket in range(SAMPLES)]
    batcher.put(jobs)
    batcher.start()
    collected.wait_for(SAMPLES)
    batcher.stop()
    check(
        "bert",
        "torch",
        {ticket: ("entropy", ticket) for ticket in range(SAMPLES)},
        {job.ticket: (job.exit, job.logits) for job in collected.jobs},  # type: ignore[misc]
    )


def test_who_leaves_frees_a_place_and_the_gone_are_not_computed(kind: tuple[str, str]) -> None:
    family, backend = kind
    collected, release, ran = Collected(), threading.Event(), []

    def before(index: int, hidden: Sequence[Any]) -> None:
        release.wait(30)
        ran.append(len(hidden))

    layers: Any = Watched(layers_of(family, backend), before)
    full = Route(MODELS[family, "classification"], Fixed(5))
    batcher: Batcher = (
        RowBatcher(layers, collected.report)
        if backend == "onnx"
        else PoolBatcher(layers, family == "albert", 4096, collected.report)
    )
    jobs = [Job(ticket, ROWS[ticket], full, request_of(full)) for ticket in range(SAMPLES)]
    batcher.start()
    batcher.put(jobs)
    for job in jobs[1:]:
        assert job.request is not None
        job.request.gone = True
    late = Job(99, ROWS[0], full, request_of(full, deadline=time.perf_counter() - 1))
    batcher.put([late])
    release.set()
    collected.wait_for(SAMPLES + 1)
    batcher.stop()
    assert sorted(job.ticket for job in collected.jobs) == [*range(SAMPLES), 99]
    assert jobs[0].exit == 4
    assert all(job.exit is None for job in jobs[1:])
    assert late.late
    # The first layer had begun for those that were let in; after it, one row is left.
    assert sum(ran) <= SAMPLES + 4


def test_a_poisonous_row_fails_alone(kind: tuple[str, str]) -> None:
    """Some rows make every batch fail that they are in, at the third layer."""
    family, backend = kind
    collected = Collected()
    poison = max(range(SAMPLES), key=lambda number: len(ROWS[number]))
    length = len(ROWS[poison])

    def before(index: int, hidden: Sequence[Any]) -> None:
        if any(row.shape[-2] == length for row in hidden):
            raise RuntimeError("cannot be computed")

    layers: Any = Watched(layers_of(family, backend), before)
    batcher: Batcher = (
        RowBatcher(layers, collected.report)
        if backend == "onnx"
        else PoolBatcher(layers, family == "albert", 4096, collected.report)
    )
    jobs = [job_of(family, ticket, ticket % SAMPLES) for ticket in range(3 * SAMPLES)]
    batcher.put(jobs)
    batcher.start()
    collected.wait_for(len(jobs))
    batcher.stop()
    assert len(collected.jobs) == len(jobs)
    for job in jobs:
        right = expected(family, backend, "entropy")[job.ticket % SAMPLES]
        if job.row is not None and len(job.row) == length:
            assert job.error is not None
            assert "cannot be computed" in job.error
        else:
            assert job.exit == right.exit


def test_idle_jobs_run_when_nothing_else_does(kind: tuple[str, str]) -> None:
    family, backend = kind
    collected = Collected()
    batcher = batcher_of(family, backend, collected)
    full = Route(MODELS[family, "classification"], Fixed(5))
    for ticket in range(3):
        batcher.put_idle(Job(1000 + ticket, ROWS[ticket], full))
    batcher.put([job_of(family, ticket, ticket % SAMPLES) for ticket in range(24)])
    batcher.start()
    collected.wait_for(27)
    batcher.stop()
    order = [job.ticket for job in collected.jobs]
    assert sorted(order[-3:]) == [1000, 1001, 1002]
    assert all(job.exit == 4 for job in collected.jobs[-3:])


@pytest.mark.parametrize("wrong", ["the first time", "always"])
def test_a_row_that_fails_in_one_call(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an error of its own, whenever it comes, and the others their answers."""
    collected = Collected()
    batcher = batcher_of("bert", WHOLE, collected)
    real, poison, calls = OnnxRunner.run_whole, len(ROWS[0]), []

    def failing(self: OnnxRunner, rows: Packed, threads: int) -> list[Finished]:
        calls.append(int(rows.lengths[0]))
        if int(rows.lengths[0]) == poison and (wrong == "always" or calls.count(poison) == 1):
            raise RuntimeError("cannot be computed")
        return real(self, rows, threads)

    monkeypatch.setattr(OnnxRunner, "run_whole", failing)
    jobs = [job_of("bert", ticket, ticket % SAMPLES, IN_ONE_CALL[0]) for ticket in range(2 * SAMPLES)]
    batcher.put(jobs)
    batcher.start()
    collected.wait_for(len(jobs))
    batcher.stop()
    assert len(calls) == len(jobs)
    failed = [job.ticket for job in jobs if job.error is not None]
    poisoned = [job.ticket for job in jobs if job.row is not None and len(job.row) == poison]
    assert set(failed) <= set(poisoned)
    assert len(failed) == (len(poisoned) if wrong == "always" else 1)
    assert all(job.exit is not None for job in jobs if job.ticket not in failed)


def test_an_idle_job_makes_way() -> None:
    """Half done, it lets the row that comes go first, and goes on where it was."""
    collected, steps = Collected(), []
    idle_runs, go_on = threading.Event(), threading.Event()

    def before(index: int, hidden: Sequence[Any]) -> None:
        steps.append(index)
        if len(steps) == 2:
            idle_runs.set()
            go_on.wait(30)

    layers: Any = Watched(layers_of("bert", "onnx"), before)
    batcher = RowBatcher(layers, collected.report)
    batcher.threads = 1
    full = Route(MODELS["bert", "classification"], Fixed(5))
    batcher.put_idle(Job(7, ROWS[0], full))
    batcher.start()
    assert idle_runs.wait(30)
    batcher.put([Job(8, ROWS[1], full, request_of(full))])
    go_on.set()
    collected.wait_for(2)
    batcher.stop()
    assert [job.ticket for job in collected.jobs] == [8, 7]
    assert steps == [0, 1, 0, 1, 2, 3, 4, 2, 3, 4], "what it had computed is not lost"


def test_idle_jobs_are_forgotten_where_there_is_never_time() -> None:
    batcher = batcher_of("bert", "torch", Collected())
    full = Route(MODELS["bert", "classification"], Fixed(5))
    for ticket in range(2000):
        batcher.put_idle(Job(ticket, ROWS[0], full))
    assert len(batcher.idle) < 1000


def test_a_thread_that_dies_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    collected = Collected()
    batcher = batcher_of("bert", "torch", collected)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def deliver(jobs: Sequence[Job]) -> None:
        raise MemoryError

    batcher.report = Report(deliver, lambda rows, tokens: None, collected.broken.append)
    batcher.start()
    batcher.put([job_of("bert", 0, 0)])
    batcher._running[0].join(30)
    assert isinstance(collected.broken[0], MemoryError)
