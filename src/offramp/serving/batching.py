"""Continuous batching: rows join when they come and leave when they are done, in threads of their own."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offramp.engine.depth_pools import DepthPools
from offramp.engine.feeding import pack
from offramp.engine.runner import Finished
from offramp.engine.waves import Layers, Route, Wave, advance
from offramp.errors import one_line
from offramp.serving.jobs import Job

if TYPE_CHECKING:
    from offramp.engine.onnx.onnx_layers import OnnxLayers
    from offramp.engine.onnx.whole_rows import OnnxRunner

logger = logging.getLogger(__name__)

IDLE_JOBS = 512
"""That may wait for idle time: more are forgotten, the oldest first."""


@dataclass(frozen=True)
class Report:
    """Whom a batcher tells, in its own threads, what has happened."""

    deliver: Callable[[Sequence[Job]], None]
    """Who has finished."""
    on_batch: Callable[[int, int], None]
    """The rows and tokens of a batch."""
    broken: Callable[[BaseException], None]
    """A thread has ended that should not: nothing more will be delivered."""


class Batcher(ABC):
    """Takes jobs from any thread, and delivers each exactly once: with an answer, an error, or because it is gone."""

    threads = 1

    def __init__(self, report: Report) -> None:
        self.report = report
        self.changed = threading.Condition()
        self.inbox: deque[Job] = deque()
        self.idle: deque[Job] = deque(maxlen=IDLE_JOBS)
        self.stopped = False
        self._running: list[threading.Thread] = []

    def start(self) -> None:
        names = [f"offramp-compute-{number}" for number in range(self.threads)]
        self._running = [
            threading.Thread(target=self._guarded, args=(i,), name=n, daemon=True) for i, n in enumerate(names)
        ]
        for thread in self._running:
            thread.start()

    def put(self, jobs: Sequence[Job]) -> None:
        with self.changed:
            self.inbox.extend(jobs)
            self.changed.notify(len(jobs))

    def put_idle(self, job: Job) -> None:
        """To be computed when there is nothing else to do, and not at all where there always is."""
        with self.changed:
            self.idle.append(job)
            self.changed.notify()

    def stop(self) -> None:
        """End the threads, after what they are at; what waits stays undelivered."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()
        for thread in self._running:
            thread.join()

    @abstractmethod
    def warm_up(self, job: Job) -> None:
        """Run a job before the threads start, on everything that is made when it is first used."""

    def _guarded(self, number: int) -> None:
        try:
            self._run(number)
        except BaseException as error:
            self.report.broken(error)
            raise

    @abstractmethod
    def _run(self, number: int) -> None:
        """What thread `number` does."""

    def _alone(self, layers: Layers, job: Job) -> None:
        """Run one job from its start, and put into it whatever comes of it."""
        try:
            wave = start(layers, job)
            while wave.hidden:
                if job.is_gone:
                    return
                one_more_layer(layers, job, wave)
        except Exception as error:
            fail(job, error)


class PoolBatcher(Batcher):
    """One thread, a layer at a time: rows at the same depth run together; `at_work` surrounds what it does."""

    def __init__(
        self,
        layers: Layers,
        same_layers: bool,
        most_tokens: int,
        report: Report,
        at_work: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__(report)
        self.layers = layers
        self.at_work = at_work
        self.jobs: dict[int, Job] = {}
        self.pools = DepthPools(layers, same_layers, most_tokens, lambda ticket: self.jobs[ticket].is_gone)

    def warm_up(self, job: Job) -> None:
        self._alone(self.layers, job)

    def _run(self, number: int) -> None:
        with self.at_work():
            while self._take_in():
                self._step()

    def _take_in(self) -> bool:
        """Let in who has come; wait, where there is nothing to do. False at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.inbox or self.idle or self.jobs)
            came = list(self.inbox)
            self.inbox.clear()
            if not (came or self.jobs) and self.idle:
                came.append(self.idle.popleft())
        self._admit(came)
        return not self.stopped

    def _admit(self, came: Sequence[Job]) -> None:
        now = time.perf_counter()
        for job in came:
            if job.begin(now) and job.row is not None:
                self.jobs[job.ticket] = job
                self.pools.add(job.ticket, job.row, job.route)
            else:
                self.report.deliver([job])

    def _step(self) -> None:
        if not self.pools:
            return
        now = time.perf_counter()
        try:
            finished = self.pools.step()
        except Exception:  # whatever one row has done must not be the others' end
            logger.debug("a batch failed: its rows are run alone", exc_info=True)
            self._each_alone(self.pools.running)
        else:
            for ticket in self.pools.let_in:
                self.jobs[ticket].started = now
            if self.pools.running:
                self.report.on_batch(len(self.pools.running), self.pools.tokens_run)
            self._hand_out(finished)
        self._done([self.jobs.pop(ticket) for ticket in self.pools.dropped])

    def _each_alone(self, tickets: Iterable[int]) -> None:
        jobs = [self.jobs.pop(ticket) for ticket in tickets]
        for job in jobs:
            self._alone(self.layers, job)
        self._done(jobs)

    def _hand_out(self, finished: Sequence[Finished]) -> None:
        done = []
        for part in finished:
            for ticket, exit, logits in zip(part.tickets.tolist(), part.exits.tolist(), part.logits, strict=True):
                job = self.jobs.pop(ticket)
                job.finish(exit, logits)
                done.append(job)
        self._done(done)

    def _done(self, jobs: Sequence[Job]) -> None:
        if jobs:
            now = time.perf_counter()
            for job in jobs:
                job.finished = now
            self.report.deliver(jobs)


class RowBatcher(Batcher):
    """As many threads as there are cores to use, each with a row of its own, the oldest first.

    On a CPU, rows gain nothing by company (see `OnnxLayers`), and a row that waits for others at each layer loses. A
    row that is alone uses all cores.
    """

    def __init__(self, layers: OnnxLayers, report: Report, whole: Mapping[Route, OnnxRunner] | None = None) -> None:
        super().__init__(report)
        self.whole = whole or {}
        """Routes that are run in one call; what is on another goes layer by layer."""
        self.together = layers
        self.threads = layers.threads
        self.lanes: list[Layers] = [layers.lane() for _ in range(self.threads)]
        self.busy = 0
        """Threads with a row that somebody waits for."""

    def warm_up(self, job: Job) -> None:
        for layers in self.lanes[:1] if self.whole else (self.together, self.lanes[0]):
            self._alone(layers, job)
        try:
            for runner in self.whole.values():
                for threads in {1, self.threads}:
                    in_one_call(runner, job, threads)
        except Exception as error:
            fail(job, error)

    def _run(self, number: int) -> None:
        while self._turn(self.lanes[number]):
            pass

    def _turn(self, lane: Layers) -> bool:
        """One job, which is let go of before the next is waited for; False at the end."""
        if (job := self._next()) is None:
            return False
        if job.request is None:
            self._in_idle_time(lane, job)
            return True
        try:
            self._compute(lane, job)
        finally:
            with self.changed:
                self.busy -= 1
                if not self.busy and self.idle:
                    self.changed.notify()
        return True

    def _next(self) -> Job | None:
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.inbox or (self.idle and not self.busy))
            if self.stopped:
                return None
            if self.inbox:
                self.busy += 1
                return self.inbox.popleft()
            return self.idle.popleft()

    def _compute(self, lane: Layers, job: Job) -> None:
        if not job.begin(time.perf_counter()) or job.row is None:
            self.report.deliver([job])
            return
        # A session with threads of its own is for one row at a time: nobody else is busy, and who comes meanwhile sees
        # that this one is.
        try:
            if job.route in self.whole:
                in_one_call(self.whole[job.route], job, self.threads if self.busy == 1 else 1)
            else:
                wave = start(lane, job)
                while wave.hidden and not job.is_gone:
                    one_more_layer(self.together if self.busy == 1 and not self.whole else lane, job, wave)
        except Exception as error:
            fail(job, error)
        self._done(job)

    def _in_idle_time(self, lane: Layers, job: Job) -> None:
        """Run a job for as long as nobody else wants to run."""
        try:
            job.wave = start(lane, job) if job.wave is None else job.wave
            while job.wave.hidden:
                if self.inbox or self.busy:
                    self.put_idle(job)
                    return
                one_more_layer(lane, job, job.wave)
        except Exception as error:
            fail(job, error)
        self._done(job)

    def _done(self, job: Job) -> None:
        assert job.row is not None
        self.report.on_batch(1, len(job.row))
        job.finished = time.perf_counter()
        self.report.deliver([job])


def start(layers: Layers, job: Job) -> Wave:
    assert job.row is not None
    return job.route.start(layers, pack([(job.ticket, job.row)]))


def in_one_call(runner: OnnxRunner, job: Job, threads: int) -> None:
    """All of a row's way."""
    assert job.row is not None
    [finished] = runner.run_whole(pack([(job.ticket, job.row)]), threads)
    job.finish(int(finished.exits[0]), finished.logits[0])


def one_more_layer(layers: Layers, job: Job, wave: Wave) -> None:
    """Of a wave with one row."""
    for finished in advance(layers, [wave]):
        job.finish(int(finished.exits[0]), finished.logits[0])


def fail(job: Job, error: Exception) -> None:
    logger.debug("a row failed", exc_info=error)
    job.error = f"the text could not be computed ({one_line(error)})"
