"""Texts to rows, in a thread of its own: what has come meanwhile is encoded together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress, count

from offramp.backbones import Backbone
from offramp.engine import Text
from offramp.engine.texts import encode_texts
from offramp.errors import one_line
from offramp.serving.jobs import Job, Request
from offramp.tasks.encoding import Row, TextEncoder

EMPTY = "the text is empty: expected some words"

AT_ONCE = 256
"""Texts that are encoded together: rows should not wait long for the texts of others."""
NO_LIMIT = 1_000_000
"""Tokens of a text that is not to be cut."""


class Tokeniser:
    """Takes requests, and hands on their rows; texts that are no rows come out as jobs with an error.

    Args:
        encoder: of the model.
        backbone: what rows must fit.
        hand_on: told of the jobs of each request, once they are encoded.
        on_time: told how long some texts took.
        broken: told if the thread ends that should not.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        backbone: Backbone,
        hand_on: Callable[[Sequence[Job]], None],
        on_time: Callable[[float], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        self.encoder = encoder
        self.uncut = replace(encoder, max_length=NO_LIMIT)
        self.backbone = backbone
        self.hand_on = hand_on
        self.on_time = on_time
        self.broken = broken
        self.tickets = count()
        self.changed = threading.Condition()
        self.inbox: deque[Request] = deque()
        self.stopped = False
        self.thread = threading.Thread(target=self._run, name="offramp-tokenise", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def put(self, request: Request) -> None:
        with self.changed:
            self.inbox.append(request)
            self.changed.notify()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify()
        self.thread.join()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            self.broken(error)
            raise

    def _turn(self) -> bool:
        """One batch of requests, which is let go of before the next is waited for; False at the end."""
        if not (requests := self._take()):
            return False
        self._encode(requests)
        return True

    def _take(self) -> list[Request]:
        """Requests of one kind that have come; none at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.inbox or self.stopped)
            if self.stopped:
                return []
            taken = [self.inbox.popleft()]
            texts = len(taken[0].texts)
            while self.inbox and self.inbox[0].truncate == taken[0].truncate and texts < AT_ONCE:
                taken.append(self.inbox.popleft())
                texts += len(taken[-1].texts)
            return taken

    def _encode(self, requests: Sequence[Request]) -> None:
        started = time.perf_counter()
        wanted = [not request.gone for request in requests]
        texts = [text for request in compress(requests, wanted) for text in request.texts]
        rows = iter(self.rows_of(texts, requests[0].truncate))
        took = time.perf_counter() - started
        if texts:
            self.on_time(took)
        jobs: list[Job] = []
        for request, is_wanted in zip(requests, wanted, strict=True):
            request.tokenise_s = took
            request.jobs = tuple(self._job(request, next(rows) if is_wanted else None) for _ in request.texts)
            jobs += request.jobs
        self.hand_on(jobs)

    def _job(self, request: Request, row: Row | str | None) -> Job:
        if isinstance(row, Row):
            return Job(next(self.tickets), row, request.route, request)
        return Job(next(self.tickets), None, request.route, request, row)

    def rows_of(self, texts: Sequence[Text], truncate: bool) -> list[Row | str]:
        """The row of each text, or what is wrong with it."""
        if any(map(is_empty, texts)):
            rest = [text for text in texts if not is_empty(text)]
            others = iter(self.rows_of(rest, truncate) if rest else ())
            return [EMPTY if is_empty(text) else next(others) for text in texts]
        encoder = self.encoder if truncate else self.uncut
        try:
            rows = encode_texts(encoder, self.backbone, texts)
        except Exception as error:
            if len(texts) == 1:
                return [f"the text cannot be tokenised ({one_line(error)})"]
            return [row for text in texts for row in self.rows_of([text], truncate)]
        most = self.encoder.max_length
        return [
            f"{len(row)} tokens, and the model takes {most}: shorten the text, or let it be truncated"
            if isinstance(row, Row) and len(row) > most
            else row
            for row in rows
        ]


def is_empty(text: Text) -> bool:
    """Whether there is nothing to answer; a pair needs both."""
    return any(isinstance(part, str) and not part.strip() for part in (text if isinstance(text, tuple) else (text,)))
