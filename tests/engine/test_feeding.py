"""Windows hold every item once and in order; batches keep to their size; threads end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.engine.feeding import BatchSize, Feed, Window, make_window
from offramp.tasks.encoding import Row


def encode(items: Sequence[int]) -> list[Row | str]:
    """A row of so many tokens; 0 is wrong."""
    return [Row([item] * item, [0] * item) if item else "nothing" for item in items]


def windows_of(feed: Feed) -> list[Window]:
    found = []
    while (window := feed.next()) is not None:
        found.append(window)
    return found


def check(windows: Sequence[Window], items: Sequence[int], size: BatchSize) -> None:
    """Every item is in one batch, or has an error, under its own number."""
    first = 0
    for window in windows:
        assert window.first == first
        tickets = [ticket for batch in window.batches for ticket in batch.tickets.tolist()]
        assert sorted([*tickets, *window.errors]) == list(range(first, first + window.items))
        assert all(items[ticket] == 0 for ticket in window.errors)
        lengths = [length for batch in window.batches for length in batch.lengths.tolist()]
        assert lengths == sorted(lengths) == [items[ticket] for ticket in tickets]
        for batch in window.batches:
            assert len(batch) == 1 or batch.lengths.sum() <= size.tokens
            assert size.rows is None or len(batch) <= size.rows
            assert batch.input_ids.tolist() == [n for n in batch.lengths.tolist() for _ in range(n)]
            assert batch.token_type_ids is not None
            assert len(batch.token_type_ids) == len(batch.input_ids)
        first += window.items
    assert first == len(items)


@settings(max_examples=40, deadline=None)
@given(
    items=st.lists(st.integers(0, 9), max_size=30),
    tokens=st.integers(1, 40),
    rows=st.none() | st.integers(1, 6),
    most=st.integers(1, 12),
)
def test_every_item_once(items: list[int], tokens: int, rows: int | None, most: int) -> None:
    size = BatchSize(tokens, rows)
    check([make_window(0, items, encode, size)], items, size)
    check(windows_of(Feed(iter(items), encode, size, most)), items, size)


def test_what_the_source_raises_comes_last_and_again() -> None:
    def items() -> Iterator[int]:
        yield from [3, 4, 5]
        raise ValueError("line 4")

    feed = Feed(items(), encode, BatchSize(100), 10)
    found = 0
    with pytest.raises(ValueError, match="line 4"):  # noqa: PT012 - windows first, then the error
        while (window := feed.next()) is not None:
            found += window.items
    assert found == 3
    assert feed.next_at_once() is None
    with pytest.raises(ValueError, match="line 4"):
        feed.next()


def test_an_encoder_that_fails_is_heard_of() -> None:
    def broken(items: Sequence[int]) -> list[Row | str]:
        raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        Feed(iter([1]), broken, BatchSize(100), 10).next()


def test_a_slow_source_is_answered_at_once() -> None:
    answered = threading.Event()

    def items() -> Iterator[int]:
        yield 3
        assert answered.wait(30), "the first item was held back until the second came"
        yield 4

    feed = Feed(items(), encode, BatchSize(100), 1000)
    first = feed.next()
    assert first is not None
    assert first.items == 1
    answered.set()
    assert [window.items for window in windows_of(feed)] == [1]


def test_threads_end_when_nobody_reads_on() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 2

    before = threading.active_count()
    feed = Feed(endless(), encode, BatchSize(100), 8)
    feed.next()
    assert threading.active_count() > before
    feed.close()
    assert threading.active_count() == before


def test_closing_waits_for_the_encoder_and_not_for_a_silent_source() -> None:
    read, written = os.pipe()

    def silent() -> Iterator[int]:
        yield 2
        os.read(read, 1)
        yield 2

    def slow(items: Sequence[int]) -> list[Row | str]:
        encoding.set()
        time.sleep(0.2)
        return encode(items)

    encoding = threading.Event()
    feed = Feed(silent(), slow, BatchSize(100), 8)
    assert encoding.wait(10)
    begun = time.monotonic()
    feed.close()
    assert not feed.encoder.is_alive()
    assert feed.reader.is_alive()
    assert time.monotonic() - begun < 10
    os.write(written, b".")
    feed.reader.join(10)
    assert not feed.reader.is_alive()


def test_closed_by_the_reader_while_it_holds_what_the_encoder_waits_for() -> None:
    closed = threading.Event()

    def closing() -> Iterator[int]:
        yield 2
        begun.wait(10)
        with feed.changed:  # as where Python clears a stream away while the reader hands an item over
            time.sleep(0.1)
            feed.close()
            closed.set()

    begun = threading.Event()
    feed = Feed(closing(), encode, BatchSize(100), 8)
    begun.set()
    assert closed.wait(10)
    for thread in (feed.reader, feed.encoder):
        thread.join(10)
        assert not thread.is_alive()


def test_closed_by_a_thread_of_its_own() -> None:
    """Where Python clears a stream away that was given up, while it encodes."""
    closed = threading.Event()

    def closing(items: Sequence[int]) -> list[Row | str]:
        begun.wait(10)
        feed.close()
        closed.set()
        return encode(items)

    begun = threading.Event()
    feed = Feed(iter([2, 2]), closing, BatchSize(100), 8)
    begun.set()
    assert closed.wait(10)
    feed.encoder.join(10)
    assert not feed.encoder.is_alive()
