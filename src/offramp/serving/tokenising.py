"""Texts to rows, in a thread of its own: what has come meanwhile is encoded together."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import compress, count, groupby

from offramp.backbones import Backbone
from offramp.engine import Text
from offramp.engine.texts import EMPTY, encode_texts, what_is_wrong, wrong_tokens
from offramp.errors import one_line
from offramp.serving.beginnings import beginning, is_told_by_words
from offramp.serving.jobs import Job, Request
from offramp.tasks.encoding import Row, TextEncoder

SHORTEN = "shorten the text, or let it be truncated"

AT_ONCE = 256
"""Texts that are encoded together: rows should not wait long for the texts of others."""
LETTERS_AT_ONCE = 2**18
"""Letters of them: a tenth of a second's work. Afterwards it is seen who is gone meanwhile."""
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
        self.one_more = replace(encoder, max_length=encoder.max_length + 1)
        self.by_words = is_told_by_words(encoder.tokenizer)
        self.end = encoder.tokenizer.sep_token_id
        self.frame = {encoder.tokenizer.cls_token_id, self.end}
        """Tokens around the words of a text."""
        self.backbone = backbone
        self.hand_on = hand_on
        self.on_time = on_time
        self.broken = broken
        self.tickets = count()
        self.changed = threading.Condition()
        self.inbox: deque[Request] = deque()
        self.large: deque[Request] = deque()
        """Those with more letters than are encoded at once: others wait for one of them at most."""
        self.was_large = False
        self.stopped = False
        self.thread = threading.Thread(target=self._run, name="offramp-tokenise", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def put(self, request: Request) -> None:
        with self.changed:
            (self.large if _size(request.texts)[1] > LETTERS_AT_ONCE else self.inbox).append(request)
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
            self.changed.wait_for(lambda: self.inbox or self.large or self.stopped)
            if self.stopped:
                return []
            if self.large and not (self.was_large and self.inbox):
                self.was_large = True
                return [self.large.popleft()]
            self.was_large = False
            taken = [self.inbox.popleft()]
            texts, letters = _size(taken[0].texts)
            while self.inbox and self.inbox[0].truncate == taken[0].truncate:
                more = _size(self.inbox[0].texts)
                texts, letters = texts + more[0], letters + more[1]
                if texts > AT_ONCE or letters > LETTERS_AT_ONCE:
                    break
                taken.append(self.inbox.popleft())
            return taken

    def _encode(self, requests: Sequence[Request]) -> None:
        started, encoded = time.perf_counter(), 0
        rows: list[Row | str | None] = []
        for piece in _pieces([(request, text) for request in requests for text in request.texts]):
            wanted = [not request.gone for request, _ in piece]  # it may have left while others were encoded
            texts = [text for _, text in compress(piece, wanted)]
            found = iter(self.rows_of(texts, requests[0].truncate))
            rows += [next(found) if is_wanted else None for is_wanted in wanted]
            encoded += len(texts)
        took = time.perf_counter() - started
        if encoded:
            self.on_time(took)
        jobs: list[Job] = []
        in_order = iter(rows)
        for request in requests:
            request.tokenise_s = took
            request.jobs = tuple(self._job(request, next(in_order)) for _ in request.texts)
            jobs += request.jobs
        self.hand_on(jobs)

    def _job(self, request: Request, row: Row | str | None) -> Job:
        if isinstance(row, Row):
            return Job(next(self.tickets), row, request.route, request)
        return Job(next(self.tickets), None, request.route, request, row)

    def rows_of(self, texts: Sequence[Text], truncate: bool) -> list[Row | str]:
        """The row of each text, or what is wrong with it."""
        known = [self._known_soon(text, truncate) for text in texts]
        rest = [text for text, row in zip(texts, known, strict=True) if row is None]
        others = iter(self._whole(rest, truncate) if rest else ())
        rows = [next(others) if row is None else row for row in known]
        return [self._checked(text, row) for text, row in zip(texts, rows, strict=True)]

    def _known_soon(self, text: Text, truncate: bool) -> Row | str | None:
        """Of a text that is empty, or so long that its beginning decides; None where all of it is to be read.

        A pair is always read: what is kept of it depends on which of the two is the longer one.
        """
        if is_empty(text):
            return EMPTY
        most = self.encoder.max_length
        first = beginning(text, most) if self.by_words and isinstance(text, str) else None
        if first is None or what_is_wrong(text):
            return None
        encoder = self.encoder if truncate else self.one_more
        try:
            [row] = encoder([first])
        except Exception:  # said of the whole text
            return None
        if len(row) < encoder.max_length:
            return None
        if not truncate:
            return f"more than the {most} tokens that the model takes: {SHORTEN}"
        return wrong_tokens(self.backbone, row) or row

    def _whole(self, texts: Sequence[Text], truncate: bool) -> list[Row | str]:
        encoder = self.encoder if truncate else self.uncut
        try:
            return encode_texts(encoder, self.backbone, texts)
        except Exception as error:
            if len(texts) == 1:
                return [f"the text cannot be tokenised ({one_line(error)})"]
            return [row for text in texts for row in self._whole([text], truncate)]

    def _checked(self, text: Text, row: Row | str) -> Row | str:
        if isinstance(row, str):
            return row
        if len(row) > self.encoder.max_length:
            return f"{len(row)} tokens, and the model takes {self.encoder.max_length}: {SHORTEN}"
        return row if self._has_words(text, row) else EMPTY

    def _has_words(self, text: Text, row: Row) -> bool:
        """Whether there is a token between those that frame a text; of a pair, in both."""
        parts = sum(not is_frame for is_frame, _ in groupby(row.input_ids, self.frame.__contains__))
        told_apart = isinstance(text, tuple) and row.input_ids.count(self.end) > 1
        return parts >= (2 if told_apart else 1)


def is_empty(text: Text) -> bool:
    """Whether there is nothing to answer; a pair needs both."""
    return any(isinstance(part, str) and not part.strip() for part in _parts(text))


def _parts(text: Text) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else (text,)


def _size(texts: Sequence[Text]) -> tuple[int, int]:
    """Texts, and their letters."""
    return len(texts), sum(map(_letters, texts))


def _letters(text: Text) -> int:
    return sum(len(part) for part in _parts(text) if isinstance(part, str))


def _pieces(texts: Sequence[tuple[Request, Text]]) -> Iterator[list[tuple[Request, Text]]]:
    """As many at a time as are encoded together by their letters, and one at least."""
    piece: list[tuple[Request, Text]] = []
    letters = 0
    for request, text in texts:
        letters += _letters(text)
        if piece and letters > LETTERS_AT_ONCE:
            yield piece
            piece, letters = [], _letters(text)
        piece.append((request, text))
    yield piece
