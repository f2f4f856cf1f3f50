"""Items to packed batches: read and encoded ahead in other threads, sorted by length within a window."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import Any

import numpy as np

from offramp.engine.runner import Packed
from offramp.tasks.encoding import Row

Encode = Callable[[Sequence[Any]], list[Row | str]]
"""Items to rows; of an item that cannot be one, what is wrong with it."""

AHEAD = 2
"""Windows that wait, encoded, for the model."""
SECONDS_TO_READ = 0.5
"""How long a source that is read may take to give its next item once nobody wants it: a pipe may never."""


@dataclass(frozen=True)
class BatchSize:
    """How much is computed together: so many tokens, and no more than so many rows where that is said."""

    tokens: int
    rows: int | None = None


@dataclass
class Window:
    """Some items that follow each other: what is to be computed, and what cannot be."""

    first: int
    items: int
    batches: list[Packed] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    """By ticket."""


def make_window(first: int, items: Sequence[Any], encode: Encode, size: BatchSize) -> Window:
    """Encode items, numbered from `first`, and pack the rows by length."""
    window = Window(first, len(items))
    good: list[tuple[int, Row]] = []
    for ticket, row in enumerate(encode(items), first):
        if isinstance(row, str):
            window.errors[ticket] = row
        else:
            good.append((ticket, row))
    good.sort(key=lambda numbered: len(numbered[1]))
    start, tokens = 0, 0
    for place, (_, row) in enumerate(good):
        if place > start and (tokens + len(row) > size.tokens or place - start == size.rows):
            window.batches.append(pack(good[start:place]))
            start, tokens = place, 0
        tokens += len(row)
    if good:
        window.batches.append(pack(good[start:]))
    return window


def pack(rows: Sequence[tuple[int, Row]]) -> Packed:
    """Numbered rows end to end."""
    lengths = np.array([len(row) for _, row in rows], np.int64)
    total = int(lengths.sum())
    ids = np.fromiter((token for _, row in rows for token in row.input_ids), np.int64, total)
    types = None
    if any(row.token_type_ids is not None for _, row in rows):
        zeros = [0] * int(lengths.max())
        types = np.fromiter(
            (kind for _, row in rows for kind in row.token_type_ids or zeros[: len(row)]), np.int64, total
        )
    return Packed(np.array([ticket for ticket, _ in rows], np.int64), lengths, ids, types)


class Feed:
    """Windows of an iterable of any length, made ahead in two threads: one reads, one encodes.

    A window holds what has been read by then, at most `most` items: a slow source is answered at once, and a fast one
    in large windows. What the source raises comes after the windows before it.
    """

    def __init__(self, items: Iterable[Any], encode: Encode, size: BatchSize, most: int) -> None:
        self.items = iter(items)
        self.encode = encode
        self.size = size
        self.most = most
        self.read: deque[Any] = deque()
        self.changed = threading.Condition()
        self.ended = False
        self.wrong: BaseException | None = None
        self.stopped = threading.Event()
        self.windows: Queue[Window | None] = Queue(AHEAD)
        self.over = False
        self.reader, self.encoder = (
            threading.Thread(target=work, name=f"offramp{work.__name__}", daemon=True)
            for work in (self._read, self._encode)
        )
        self.reader.start()
        self.encoder.start()

    def close(self) -> None:
        """Stop both threads, and wait for them: Python's end would kill them in the midst of the tokenizer's code."""
        self.stopped.set()
        with self.changed:
            self.changed.notify_all()
        if threading.current_thread() in (self.reader, self.encoder):
            return  # a stream that was given up is cleared away in any thread; this one may hold what the other needs
        for thread, seconds in ((self.encoder, None), (self.reader, SECONDS_TO_READ)):
            thread.join(seconds)

    def next_at_once(self) -> Window | None:
        """The next window, if it is there already."""
        try:
            return None if self.over else self._opened(self.windows.get_nowait())
        except Empty:
            return None

    def next(self) -> Window | None:
        """Wait for the next window; None at the end."""
        while not self.over:
            try:
                window = self._opened(self.windows.get(timeout=0.1))  # so that Ctrl-C is heard while waiting
            except Empty:
                continue
            if window is not None:
                return window
        if self.wrong is not None:
            raise self.wrong
        return None

    def _opened(self, got: Window | None) -> Window | None:
        self.over = got is None
        return got

    def _read(self) -> None:
        try:
            for item in self.items:
                with self.changed:
                    self.changed.wait_for(lambda: len(self.read) < self.most or self.stopped.is_set())
                    self.read.append(item)
                    self.changed.notify_all()
                if self.stopped.is_set():
                    return
        except BaseException as error:
            self.wrong = error
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def _encode(self) -> None:
        first = 0
        try:
            while items := self._take():
                self._hand_over(make_window(first, items, self.encode, self.size))
                first += len(items)
        except BaseException as error:
            self.wrong = error
        self._hand_over(None)

    def _take(self) -> list[Any]:
        """What has been read, once there is something; nothing at the end."""
        with self.changed:
            self.changed.wait_for(lambda: self.read or self.ended or self.stopped.is_set())
            taken = list(self.read)
            self.read.clear()
            self.changed.notify_all()
            return [] if self.stopped.is_set() else taken

    def _hand_over(self, window: Window | None) -> None:
        while not self.stopped.is_set():
            with suppress(Full):
                self.windows.put(window, timeout=0.1)
                return
