"""Clients that are slow, leave, send too much or talk nonsense: none is waited for, none harms another."""

from __future__ import annotations

import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

import offramp
from offramp.serving import connection, limits
from tests.serving.http_server import (
    PATIENCE,
    Waiting,
    client_of,
    is_refused,
    serving,
    settings_of,
    stoppable,
    until,
)

BODY = b'{"inputs": "a"}'
JSON = {"content-type": "application/json"}


def request(body: bytes = BODY, *headers: str, length: int | None = None) -> bytes:
    lines = ["POST /predict HTTP/1.1", "host: here", "content-type: application/json", *headers]
    if length is not None or not any("chunked" in header for header in headers):
        lines.append(f"content-length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as opened:
        yield opened


def to_the_end(opened: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    while part := opened.recv(65536):
        found += part
    return found


def is_open(address: str) -> bool:
    try:
        with connected(address):
            return True
    except ConnectionError:  # refused, or reset where the listener closes at this very moment
        return False


def is_cut_off(opened: socket.socket, parts: Iterable[bytes], every: float = 0.0) -> bool:
    """Whether the server ends it while parts are still being sent."""
    end = time.monotonic() + PATIENCE
    for part in parts:
        if time.monotonic() > end:
            break
        try:
            opened.sendall(part)
        except TimeoutError:
            continue  # nobody reads it for now
        except OSError:
            return True
        time.sleep(every)
    return False


@pytest.fixture
def waiting(calibrated: Path) -> Waiting:
    return Waiting(offramp.load(calibrated))


@pytest.fixture
def open_gate(calibrated: Path) -> Waiting:
    return Waiting(offramp.load(calibrated), open=True)


@pytest.mark.parametrize(
    ("sent", "status", "in_body"),
    [
        (b"", None, False),
        (b"POST /predict HTTP/1.1\r\nhost: he", b"408", False),
        (request(b'{"inp', length=15), b"408", True),
        (request(b"5\r\nhello\r\n", "transfer-encoding: chunked"), b"408", True),
    ],
    ids=["silent", "in the headers", "in the body", "in a chunk"],
)
def test_a_client_that_does_not_go_on_is_let_go(
    calibrated: Path, open_gate: Waiting, sent: bytes, status: bytes | None, in_body: bool
) -> None:
    with serving(settings_of(calibrated, read_timeout=0.3), open_gate) as address, connected(address) as slow:
        started = time.monotonic()
        slow.sendall(sent)
        answer = to_the_end(slow)
        assert 0.2 < time.monotonic() - started < PATIENCE / 2
        assert answer.startswith(b"HTTP/1.1 408 ") if status else answer == b""
        until(lambda: open_gate.counted == ({"invalid": 1} if in_body else {}))
        assert httpx.post(f"{address}/predict", content=BODY, headers=JSON).status_code == 200


def test_a_trickle_is_no_request(calibrated: Path, open_gate: Waiting) -> None:
    """A byte now and then does not win more time."""
    with serving(settings_of(calibrated, read_timeout=0.4), open_gate) as address, connected(address) as slow:
        whole = request()
        assert is_cut_off(slow, (bytes([byte]) for byte in whole + whole), every=0.02)
        assert open_gate.started == 0


def test_a_second_request_has_its_own_time(calibrated: Path, open_gate: Waiting) -> None:
    with serving(settings_of(calibrated, read_timeout=0.5), open_gate) as address, connected(address) as steady:
        for _ in range(4):
            steady.sendall(request())
            assert steady.recv(65536).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.2)
        steady.sendall(b"POST /predict HTTP/1.1\r\n")
        assert to_the_end(steady).startswith(b"HTTP/1.1 408 ")


def test_an_idle_connection_is_closed(calibrated: Path, open_gate: Waiting) -> None:
    with serving(settings_of(calibrated, keep_alive=0.2), open_gate) as address, connected(address) as idle:
        idle.sendall(request())
        assert to_the_end(idle).startswith(b"HTTP/1.1 200 ")


def test_who_does_not_read_the_answer_is_let_go(calibrated: Path, open_gate: Waiting) -> None:
    """More than the socket's buffers hold, to a client that takes none of it."""
    settings = settings_of(calibrated, read_timeout=0.5, max_inputs=1024, keep_alive=0.5)
    many = request(json.dumps({"inputs": ["a"] * 1000, "details": True}).encode())
    with serving(settings, open_gate) as address, connected(address) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(0.02)
        assert is_cut_off(deaf, itertools.repeat(many))
        assert open_gate.answered < 200
        assert httpx.post(f"{address}/predict", content=BODY, headers=JSON).status_code == 200


@pytest.mark.parametrize("abort", [False, True], ids=["closes", "resets"])
def test_rows_of_a_client_that_leaves_are_freed(calibrated: Path, waiting: Waiting, abort: bool) -> None:
    with serving(settings_of(calibrated), waiting) as address:
        with connected(address) as leaving:
            leaving.sendall(request())
            until(lambda: waiting.started)
            if abort:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        until(lambda: waiting.cancelled)
        until(lambda: waiting.counted["cancelled"])
        waiting.gate.set()
        assert httpx.post(f"{address}/predict", content=BODY, headers=JSON).status_code == 200
    assert (waiting.started, waiting.cancelled, waiting.answered) == (2, 1, 1)


@pytest.mark.parametrize("clients", [60, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_leave_at_any_time(calibrated: Path, clients: int) -> None:
    """With a real service: afterwards nothing waits, nothing is left open, and others are answered rightly."""
    settings = settings_of(calibrated)
    with client_of(settings) as client:
        expected = client.post("/predict", json={"inputs": "a fine film"}).json()
        address = str(client.base_url).rstrip("/")
        many = request(json.dumps({"inputs": ["the plot is a mess"] * 200}).encode())
        open_before, size = psutil.Process().num_fds(), psutil.Process().memory_info().rss
        for place in range(clients):
            with connected(address) as leaving:
                leaving.sendall(many[: len(many) if place % 2 else place * 40])
        until(lambda: "offramp_queue_rows 0.0" in client.get("/metrics").text)
        until(lambda: psutil.Process().num_fds() <= open_before)
        assert psutil.Process().memory_info().rss < size + 60 * 2**20
        found = client.post("/predict", json={"inputs": "a fine film"}).json()
        assert found[0]["label"] == expected[0]["label"]
        assert found[0]["score"] == pytest.approx(expected[0]["score"], abs=1e-5)


def test_more_than_may_be_answered_at_a_time(calibrated: Path, waiting: Waiting) -> None:
    with serving(settings_of(calibrated, max_requests=2), waiting) as address:
        answers: list[int] = []

        def ask() -> None:
            answers.append(httpx.post(f"{address}/predict", content=BODY, headers=JSON, timeout=PATIENCE).status_code)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for one in asking:
            one.start()
        until(lambda: waiting.started == 2)
        refused = httpx.post(f"{address}/predict", content=BODY, headers=JSON)
        is_refused(refused, 429, "2 requests are being answered")
        assert refused.headers["retry-after"] == "1"
        assert httpx.get(f"{address}/health").status_code == 200
        waiting.gate.set()
        for one in asking:
            one.join()
        assert answers == [200, 200]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size", [3000, 400_000])
def test_a_body_that_is_too_large_is_told_so(calibrated: Path, open_gate: Waiting, chunked: bool, size: int) -> None:
    with client_of(settings_of(calibrated, max_body=2000), open_gate) as client:
        part = b'{"inputs": "' + b"a" * 500
        content: Any = iter([part] * (size // len(part))) if chunked else part * (size // len(part))
        is_refused(client.post("/predict", content=content, headers=JSON), 413, "larger than 2,000 bytes")
        assert client.post("/predict", content=BODY, headers=JSON).status_code == 200
    assert open_gate.started == 1


def test_a_body_without_end_is_not_read_to_it(
    calibrated: Path, open_gate: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READ_ON", 100_000)
    with serving(settings_of(calibrated, max_body=2000), open_gate) as address:
        with connected(address) as endless:
            endless.sendall(request(b"", length=10**12))
            assert to_the_end(endless).startswith(b"HTTP/1.1 413 ")
        with connected(address) as endless:
            endless.sendall(request(b"", "transfer-encoding: chunked"))
            assert is_cut_off(endless, itertools.repeat(b"1000\r\n" + b"a" * 4096 + b"\r\n"))


def test_all_bodies_together_are_limited(calibrated: Path, open_gate: Waiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_HELD", 5000)
    with serving(settings_of(calibrated, max_body=5000), open_gate) as address:
        with connected(address) as first, connected(address) as second:
            first.sendall(request(b"a" * 4000, length=4001))
            time.sleep(0.1)
            second.sendall(request(b"a" * 4000, length=4001))
            assert to_the_end(second).startswith(b"HTTP/1.1 429 ")
        until(lambda: httpx.post(f"{address}/predict", content=BODY, headers=JSON).status_code == 200)


def test_what_is_let_go_of_is_not_counted_as_held(
    calibrated: Path, open_gate: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_HELD", 5000)
    body = json.dumps({"inputs": "a" * 1600}).encode()
    with (
        serving(settings_of(calibrated, max_body=2000), open_gate) as address,
        connected(address) as first,
        connected(address) as second,
    ):
        for part in (1900, 300):
            for large in (first, second):
                large.sendall(request(b"a" * part, length=9000) if part == 1900 else b"a" * part)
            time.sleep(0.1)
        assert httpx.post(f"{address}/predict", content=body, headers=JSON).status_code == 200


def test_one_body_may_be_as_large_as_allowed(
    calibrated: Path, open_gate: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is larger than what is held of all."""
    monkeypatch.setattr(limits, "MOST_HELD", 5000)
    with client_of(settings_of(calibrated, max_body=10_000), open_gate) as client:
        assert client.post("/predict", json={"inputs": "a" * 9000}).status_code == 200


@pytest.mark.parametrize(
    ("before", "keys"),
    [
        (b"GET /health HTTP/1.1\r\n", ()),
        (request(b"0\r\n", "transfer-encoding: chunked"), ()),
        (request(b"1\r\na\r\n0\r\n", "transfer-encoding: chunked"), ()),
        (request(b"0\r\n", "transfer-encoding: chunked"), ("secret",)),
    ],
    ids=["at the start", "after no body", "after a body", "without the key"],
)
def test_headers_without_end(calibrated: Path, open_gate: Waiting, before: bytes, keys: tuple[str, ...]) -> None:
    settings = settings_of(calibrated, api_keys=keys)
    with serving(settings, open_gate) as address, connected(address) as endless:
        endless.sendall(before)
        lines = (b"x-%d: %s\r\n" % (place, b"a" * 1000) for place in range(5000))
        assert is_cut_off(endless, lines)


@pytest.mark.parametrize("size", [1, 1000])
def test_a_body_in_many_chunks_has_no_long_headers(calibrated: Path, open_gate: Waiting, size: int) -> None:
    """However much of what is sent says where chunks begin."""
    body = json.dumps({"inputs": "a" * 80_000}).encode()
    parts = [body[place : place + size] for place in range(0, len(body), size)]
    with client_of(settings_of(calibrated), open_gate) as client:
        assert client.post("/predict", content=iter(parts), headers=JSON).status_code == 200


def test_who_asks_for_another_protocol_is_answered_in_this_one(
    calibrated: Path, open_gate: Waiting, caplog: pytest.LogCaptureFixture
) -> None:
    with client_of(settings_of(calibrated), open_gate) as client:
        asked = {"connection": "upgrade", "upgrade": "websocket"}
        assert client.get("/health", headers=asked).status_code == 200
    assert caplog.text == ""


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"POST /predict HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /predict HTTP/1.1\r\ncontent-length: many\r\n\r\n",
        b"POST /predict HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
        b"CONNECT here:80 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused(calibrated: Path, open_gate: Waiting, sent: bytes) -> None:
    with serving(settings_of(calibrated, read_timeout=1.0), open_gate) as address:
        with connected(address) as strange:
            strange.sendall(sent)
            answer = to_the_end(strange)
        assert re.match(rb"HTTP/1.1 4\d\d ", answer), answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error_type"] in ("validation", "timeout")
        assert httpx.get(f"{address}/health").status_code == 200


def test_requests_one_behind_the_other(calibrated: Path, open_gate: Waiting) -> None:
    with serving(settings_of(calibrated), open_gate) as address, connected(address) as hasty:
        hasty.sendall(request() * 9 + request(BODY, "connection: close"))
        assert to_the_end(hasty).count(b"HTTP/1.1 200 ") == 10


def test_what_was_sent_before_the_end_is_answered(
    calibrated: Path, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections in every state when the server is told to stop: those that have asked are answered."""
    monkeypatch.setattr(connection, "GRACE", 1.0)
    with (
        stoppable(settings_of(calibrated), waiting) as (address, server),
        connected(address) as idle,
        connected(address) as asked,
        connected(address) as half,
    ):
        asked.sendall(request())
        half.sendall(request(BODY[:5], length=len(BODY)))
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: here\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
        until(lambda: waiting.started)
        server.should_exit = True
        until(lambda: not is_open(address))
        idle.sendall(request())  # on its way while the server stops
        half.sendall(BODY[5:])
        until(lambda: waiting.started == 3)
        waiting.gate.set()
        for one in (asked, half, idle):
            assert to_the_end(one).startswith(b"HTTP/1.1 200 ")


def test_who_is_not_done_in_time_is_told(calibrated: Path, waiting: Waiting) -> None:
    answers: list[httpx.Response] = []
    with serving(settings_of(calibrated, drain=0.3), waiting) as address:

        def ask() -> None:
            answers.append(httpx.post(f"{address}/predict", content=BODY, headers=JSON, timeout=PATIENCE))

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: waiting.started)
    asking.join()
    is_refused(answers[0], 503, "shutting down")
    assert waiting.cancelled == 1
