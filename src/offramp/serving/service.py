"""The service: texts in, answers out, under any operating point, in the company of other requests."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from offramp import __version__
from offramp.engine import Engine, Text
from offramp.engine.coverage import RunAs
from offramp.errors import OfframpError
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.serving.answers import Answer, ExitSaid, OperatingPoint
from offramp.serving.audit import Audit
from offramp.serving.batching import Batcher, Report
from offramp.serving.flow import Flow
from offramp.serving.jobs import Job, Request, Routes
from offramp.serving.making import make_batcher
from offramp.serving.metrics import Metrics
from offramp.serving.operating_points import ALL, OperatingPoints
from offramp.serving.tokenising import Tokeniser
from offramp.serving.traffic import Traffic

SWITCH = 0.0005
"""Seconds after which Python lets another thread go on. Between two layers a row needs it for a moment only, and must
not wait for as long as a layer takes: that made a tenth of the throughput."""


class Service:
    """Answers texts as they come: tokenised in one thread, computed in others, resolved on the event loop.

    Everything but `drain` and `stats` raises `Closing` before `start` and after `drain`. All methods belong to the
    event loop that `start` was called on.

    Args:
        model: a model, or what `offramp.load` opens; one that answers with labels or a number.
        policy: where a request asks for nothing; default: the model folder's own, or full depth.
        max_batch_tokens: computed together at most.
        max_queue: rows that may have been accepted and not answered.
        audit: share of the answers that are compared with full depth's in idle time.
        allow: what requests may ask for, of `max_loss`, `policy` and `full_depth`.
        name: of the model, for clients; default: the name of its folder.
        how: `device`, `precision`, `backend`, `threads`, `max_length` and `tokenizer`, as `Engine` has them.
    """

    def __init__(
        self,
        model: MultiExitModel | str | Path,
        *,
        policy: Policy | str | None = None,
        max_batch_tokens: int = 4096,
        max_queue: int = 1024,
        audit: float = 0.01,
        allow: Collection[str] = ALL,
        name: str | None = None,
        **how: Any,
    ) -> None:
        if max_batch_tokens < 1 or max_queue < 1 or not 0 <= audit <= 1:
            raise OfframpError("max batch tokens and max queue are 1 or more, audit is a share of 0 to 1")
        self.model = model if isinstance(model, MultiExitModel) else load(model)
        self.model.eval()
        if self.model.objective.name == "span":
            raise OfframpError("this model answers questions with spans, and the server answers texts: use predict")
        self.name = name or Path(self.model.name_or_path or "model").name
        self.points = OperatingPoints(self.model, policy, allow, RunAs.of(self.model, **how))
        self.engine = Engine(self.model, self.points.default.policy, **how)
        self.max_tokens = self.engine.encoder.max_length
        self.depth = self.model.exits.layers[-1]
        self.warm = False
        self.flow = Flow(max_queue, self._accepted, self._finished)
        self.metrics = Metrics(self.model.exits.layers, lambda: self.flow.pending)
        self.traffic = Traffic(self.depth)
        self.routes = Routes(self.model, self.points.offered)
        default, full_depth = self.routes.of(self.points.default), self.routes.of(self.points.full_depth)
        self.audit = Audit(self.model, full_depth, self.metrics, audit, self.points.tolerance)
        report = Report(self.flow.deliver, self.metrics.on_batch, self.flow.broken)
        self.batcher: Batcher = make_batcher(self.engine, default, full_depth, max_batch_tokens, report)
        self.tokeniser = Tokeniser(
            self.engine.encoder, self.model.backbone, self._hand_on, self.metrics.tokenise.observe, self.flow.broken
        )

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self.flow.open

    async def start(self) -> None:
        """Warm up, where that has not been done, and take requests from then on."""
        loop = asyncio.get_running_loop()
        if not self.warm:
            await loop.run_in_executor(None, self.warm_up)
        self._switch = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH, self._switch))
        self.tokeniser.start()
        self.batcher.start()
        self.flow.start(loop)

    def warm_up(self) -> None:
        """Answer a text before anybody asks: what is wrong with the model is told here."""
        [row] = self.tokeniser.rows_of(["a text to warm up with"], truncate=True)
        if isinstance(row, str):
            raise OfframpError(f"the model cannot be served: {row}")
        job = Job(0, row, self.routes.of(self.points.full_depth))
        self.batcher.warm_up(job)
        if job.error is not None:
            raise OfframpError(f"the model cannot be served: {job.error}")
        self.warm = True

    async def answer(
        self,
        texts: Sequence[Text],
        point: OperatingPoint | None = None,
        *,
        truncate: bool = True,
        deadline_s: float | None = None,
    ) -> list[Answer]:
        """The answers in the order of the texts, under the default point or another.

        A text that cannot be answered has an `error`, and harms no other. With `truncate=False`, a text that is too
        long is such a one. Raises `Overloaded`, `TooLate` and `Closing`. Where the caller is cancelled, rows that wait
        are freed.
        """
        point = self.points.default if point is None else point
        request = await self.flow.through(texts, point, self.routes.of(point), truncate, deadline_s)
        return [self._answer(request, job) for job in request.jobs]

    async def trace(self, text: Text, *, deadline_s: float | None = None) -> list[ExitSaid]:
        """What every exit says to one text; raises what `answer` does."""
        request = await self.flow.through([text], self.points.full_depth, self.routes.recording, True, deadline_s)
        [job] = request.jobs
        if job.logits is None:
            raise OfframpError(job.error or "the text has no answer")
        exits = zip(self.model.exits.layers, job.logits.tolist(), strict=True)
        return [self._said(layer, tuple(logits)) for layer, logits in exits]

    def info(self) -> dict[str, Any]:
        """About the model, and how it is served."""
        setting, backbone = self.engine.setting, self.model.backbone
        return {
            "name": self.name,
            "family": self.model.config.backbone_config.model_type,
            "task": self.model.objective.name,
            "labels": list(self.engine.label_names),
            "layers": self.depth,
            "exit_layers": list(self.model.exits.layers),
            "width": backbone.hidden_size,
            "device": str(setting.device),
            "precision": setting.precision,
            "backend": setting.backend,
            "threads": setting.threads,
            "max_tokens": self.max_tokens,
            "max_queue": self.flow.max_queue,
            "allow": sorted(self.points.allow),
            "operating_points": [
                {
                    "name": point.name,
                    "policy": str(point.policy),
                    "promise": point.promise,
                    "max_loss": point.limit,
                    "expected": dict(point.expected),
                    "default": point is self.points.default,
                }
                for point in self.points.offered
            ],
            "version": __version__,
        }

    def stats(self) -> dict[str, Any]:
        """What has been answered since the start, and the last minute second by second."""
        per_second = self.traffic.per_second()
        return {
            "exits": {layer: self.traffic.exits[layer] for layer in sorted(set(self.model.exits.layers))},
            "answered": self.traffic.answered,
            "per_second": per_second,
            "rate": sum(per_second[-11:-1]) / 10,
            "mean_layers": self.traffic.mean_layers,
            "layers_saved": self.traffic.saved,
            "queue": self.flow.pending,
            "agreement": self.audit.stats(self.points.default),
        }

    async def drain(self, timeout_s: float) -> bool:
        """Take nothing more, finish what was accepted, end the threads; whether all was finished in time."""
        if not self.ready:
            return not self.flow.pending
        finished = await self.flow.drain(timeout_s)
        loop = asyncio.get_running_loop()
        for part in (self.tokeniser, self.batcher):
            await loop.run_in_executor(None, part.stop)
        sys.setswitchinterval(self._switch)
        return finished

    def _accepted(self, request: Request) -> None:
        self.tokeniser.put(request)

    def _hand_on(self, jobs: Sequence[Job]) -> None:
        """From the tokeniser to the batcher, but for those that are no rows."""
        if rows := [job for job in jobs if job.row is not None]:
            self.batcher.put(rows)
        if others := [job for job in jobs if job.row is None]:
            self.flow.deliver(others)

    def _finished(self, job: Job) -> None:
        """Count it, and see whether it is to be audited."""
        request = job.request
        if request is None:
            self.audit.compare(job)
        elif job.error is not None:
            self.metrics.failed_texts.inc()
        elif job.exit is not None and not job.route.record:
            layer = self.model.exits.layers[job.exit]
            self.traffic.add(layer)
            self.metrics.on_answer(layer, self.depth, queued_s(request, job), job.finished - job.started)
            if (again := self.audit.consider(job, request.point)) is not None:
                self.batcher.put_idle(again)

    def _answer(self, request: Request, job: Job) -> Answer:
        label: str | float | None = None
        score: float | None = None
        scores: tuple[float, ...] = ()
        logits: tuple[float, ...] = ()
        layer: int | None = None
        if job.logits is not None and job.exit is not None:
            logits, layer = tuple(job.logits.tolist()), self.model.exits.layers[job.exit]
            label, score, scores = self._meaning(logits)
        computed = job.started > 0
        return Answer(
            label,
            score,
            scores,
            logits,
            layer,
            self.depth,
            request.point,
            0 if job.row is None else len(job.row),
            queued_s(request, job) if computed else 0.0,
            request.tokenise_s,
            job.finished - job.started if computed else 0.0,
            job.error,
        )

    def _meaning(self, logits: Sequence[float]) -> tuple[str | float, float | None, tuple[float, ...]]:
        """Label, its probability and that of every label; the number alone in regression."""
        if not self.engine.label_names:
            return logits[0], None, ()
        largest = max(logits)
        parts = [math.exp(one - largest) for one in logits]  # so few that numpy would take longer
        whole = sum(parts)
        scores = tuple(part / whole for part in parts)
        best = logits.index(largest)
        return self.engine.label_names[best], scores[best], scores

    def _said(self, layer: int, logits: tuple[float, ...]) -> ExitSaid:
        label, score, scores = self._meaning(logits)
        return ExitSaid(layer, label, scores, score, logits)


def queued_s(request: Request, job: Job) -> float:
    """From being accepted to being computed, less tokenising."""
    return max(0.0, job.started - request.accepted - request.tokenise_s)
