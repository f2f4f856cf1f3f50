"""Continuous batching on a GPU: CUDA graphs for the operating point of most requests, torch for the others."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence

from offramp.engine.depth_pools import PATIENCE
from offramp.engine.feeding import pack
from offramp.engine.runner import Finished, Runner
from offramp.engine.waves import Layers, Route
from offramp.errors import one_line
from offramp.serving.batching import PoolBatcher, Report
from offramp.serving.jobs import Job
from offramp.tasks.encoding import Row

logger = logging.getLogger(__name__)


class GraphBatcher(PoolBatcher):
    """Rows of one route through a runner, which keeps pools of its own; the others through pools here.

    The runner holds rows back for company, but only while more come, and not for long.
    """

    def __init__(
        self,
        runner: Runner,
        route: Route,
        layers: Layers,
        same_layers: bool,
        most_tokens: int,
        report: Report,
    ) -> None:
        super().__init__(layers, same_layers, most_tokens, report)
        self.runner = runner
        self.route = route
        self.most_tokens = most_tokens
        self.fresh: deque[tuple[int, Row]] = deque()
        self.flying: set[int] = set()
        self.held_since = 0.0

    def warm_up(self, job: Job) -> None:
        super().warm_up(job)
        if job.row is not None:
            self.runner.submit(pack([(job.ticket, job.row)]))
            self.runner.flush()

    def _admit(self, came: Sequence[Job]) -> None:
        super()._admit([job for job in came if job.route is not self.route])
        now = time.perf_counter()
        for job in came:
            if job.route is not self.route:
                continue
            if job.begin(now) and job.row is not None:
                self.jobs[job.ticket] = job
                self.fresh.append((job.ticket, job.row))
            else:
                self.report.deliver([job])

    def _step(self) -> None:
        super()._step()
        try:
            self._run_graphs()
        except Exception as error:
            logger.warning(f"CUDA graphs failed ({one_line(error)}): rows are run one by one")
            self.runner.drop()
            lost, self.flying = self.flying, set()
            self._each_alone(lost)

    def _run_graphs(self) -> None:
        if self.fresh:
            if not self.flying:
                self.held_since = time.perf_counter()
            batch = self._next_batch()
            self.flying.update(ticket for ticket, _ in batch)
            self.report.on_batch(len(batch), sum(len(row) for _, row in batch))
            self._land(self.runner.submit(pack(batch)))
        if self.flying and (not self._more_come() or time.perf_counter() - self.held_since > PATIENCE):
            self._land(self.runner.flush())

    def _land(self, finished: Sequence[Finished]) -> None:
        self.flying.difference_update(ticket for part in finished for ticket in part.tickets.tolist())
        self._hand_out(finished)

    def _more_come(self) -> bool:
        return bool(self.fresh or self.inbox)

    def _next_batch(self) -> list[tuple[int, Row]]:
        batch = [self.fresh.popleft()]
        tokens = len(batch[0][1])
        while self.fresh and tokens + len(self.fresh[0][1]) <= self.most_tokens:
            batch.append(self.fresh.popleft())
            tokens += len(batch[-1][1])
        return sorted(batch, key=lambda numbered: len(numbered[1]))
