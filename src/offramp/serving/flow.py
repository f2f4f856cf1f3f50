"""Requests on their way: accepted or refused, and resolved on the event loop once all their rows are finished."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from offramp.engine import Text
from offramp.engine.waves import Route
from offramp.errors import OfframpError
from offramp.serving.answers import Closing, OperatingPoint, Overloaded, TooLate
from offramp.serving.jobs import Job, Request

logger = logging.getLogger(__name__)

SMOOTHING = 0.02
"""How much one row changes what a row is expected to take; the first rows change it more, and all of them alike."""
SOONEST = 0.1
"""Seconds after which a client may come back at the earliest."""


class Flow:
    """Counts the rows that were accepted and are not finished: that is what bounds every queue behind it.

    Args:
        max_queue: rows at most.
        on_accepted: told of every request that is accepted; every row of it is to be delivered once.
        on_finished: told, on the event loop, of every job that is finished, whoever waits for it.
    """

    def __init__(
        self, max_queue: int, on_accepted: Callable[[Request], None], on_finished: Callable[[Job], None]
    ) -> None:
        self.max_queue = max_queue
        self.on_accepted = on_accepted
        self.on_finished = on_finished
        self.open = False
        self.pending = 0
        """Rows that were accepted and are not finished."""
        self.seconds_per_row = 0.0
        """That pass from one finished row to the next while there is work."""
        self._rows_seen = 0
        self._last_finished = 0.0
        self._requests: set[Request] = set()
        self._finished: deque[Job] = deque()
        self._loop_knows = False
        """Whether the event loop has been told of the jobs in `_finished`."""
        self._empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self.open = loop, True

    async def through(
        self,
        texts: Sequence[Text],
        point: OperatingPoint,
        route: Route,
        truncate: bool,
        deadline_s: float | None,
    ) -> Request:
        """Accept texts, or refuse them; give the request back when all its rows are finished."""
        self._check_room(len(texts), deadline_s)
        loop, now = asyncio.get_running_loop(), time.perf_counter()
        deadline = None if deadline_s is None else now + deadline_s
        request = Request(texts, point, route, truncate, loop.create_future(), now, deadline, missing=len(texts))
        if not texts:
            return request
        if not self.pending:
            self._last_finished = now
            self._empty.clear()
        self.pending += len(texts)
        self._requests.add(request)
        timer = None if deadline_s is None else loop.call_later(deadline_s, self._refuse, request, too_late())
        self.on_accepted(request)
        try:
            await request.future
        finally:
            request.gone = True
            self._requests.discard(request)
            if timer is not None:
                timer.cancel()
        return request

    def _check_room(self, rows: int, deadline_s: float | None) -> None:
        if not self.open:
            raise Closing("the server is not taking requests: it is starting, or shutting down")
        if rows > self.max_queue:
            raise OfframpError(f"{rows} texts in one request, and the queue takes {self.max_queue}: send fewer at once")
        wait = self.pending * self.seconds_per_row
        if self.pending + rows > self.max_queue or (deadline_s is not None and wait > deadline_s):
            raise Overloaded(max(SOONEST, wait / 2))

    def deliver(self, jobs: Sequence[Job]) -> None:
        """Of finished jobs, from any thread. The event loop is woken once for all that come before it wakes."""
        self._finished.extend(jobs)
        if not self._loop_knows:
            self._loop_knows = True
            self._call(self._resolve)

    def broken(self, error: BaseException) -> None:
        """A thread has ended that should not: nobody waiting will be answered. From any thread."""
        logger.critical(f"the server can answer no more: {type(error).__name__}", exc_info=error)
        self.open = False
        self._call(self._refuse_all)

    async def drain(self, timeout_s: float) -> bool:
        """Accept nothing more, and wait for what was accepted; whoever waits for longer is refused."""
        self.open = False
        if self.pending:
            try:
                await asyncio.wait_for(self._empty.wait(), timeout_s)
            except asyncio.TimeoutError:
                self._refuse_all()
        return not self.pending

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    def _resolve(self) -> None:
        self._loop_knows = False  # before looking: who comes from now on tells again
        rows = 0
        while self._finished:
            job = self._finished.popleft()
            self.on_finished(job)
            if job.request is not None:
                rows += 1
                self._count_off(job, job.request)
        if not rows:
            return
        now = time.perf_counter()
        self._rows_seen += rows
        weight = min(1.0, rows * max(SMOOTHING, 1 / self._rows_seen))  # the mean of the first, then a moving one
        self.seconds_per_row += weight * ((now - self._last_finished) / rows - self.seconds_per_row)
        self._last_finished = now
        self.pending -= rows
        if not self.pending:
            self._empty.set()

    def _count_off(self, job: Job, request: Request) -> None:
        request.missing -= 1
        if job.late:
            self._refuse(request, too_late())
        elif not request.missing and not request.future.done():
            request.future.set_result(None)

    def _refuse(self, request: Request, why: Exception) -> None:
        request.gone = True
        if not request.future.done():
            request.future.set_exception(why)

    def _refuse_all(self) -> None:
        for request in list(self._requests):
            self._refuse(request, Closing("the server is shutting down"))


def too_late() -> TooLate:
    return TooLate("there was no answer within the deadline")
