"""A server process that is killed, or told to stop, and started again while clients keep asking."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import offramp
from offramp.serving.server import bound
from tests.generated import reviews
from tests.serving.http_server import PATIENCE

pytestmark = pytest.mark.slow
CLIENTS = 8
FOR = 60.0
"""Seconds that a server has to start on a busy machine."""


class Server:
    """A server process at a fixed port."""

    def __init__(self, model: Path) -> None:
        with bound("127.0.0.1", 0) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.model = model
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "offramp", "serve", str(self.model), "--port", str(self.port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OFFRAMP_SERVE_BACKEND": "torch"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert re.search(r"http://127.0.0.1:\d+", line), line + self.process.stderr.read()

    def end(self, by: signal.Signals) -> tuple[int, str]:
        """How it ended, and what it had to say."""
        self.process.send_signal(by)
        said = self.process.communicate(timeout=FOR)[1]
        return self.process.returncode, said


class Load:
    """Clients that ask, each one text after the other, and retry where a connection is lost or refused."""

    def __init__(self, address: str, expected: dict[str, tuple[str, str]]) -> None:
        self.address = address
        self.expected = expected
        self.stop = threading.Event()
        self.seen: Counter[str] = Counter()
        self.wrong: list[Any] = []
        self.threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(CLIENTS)]

    def _ask(self, seed: int) -> None:
        draw, texts = random.Random(seed), list(self.expected)
        with httpx.Client(base_url=self.address, timeout=PATIENCE) as client:
            while not self.stop.is_set():
                text = draw.choice(texts)
                while not self.stop.is_set() and not self._answered(client, text):
                    time.sleep(0.02)

    def _answered(self, client: httpx.Client, text: str) -> bool:
        try:
            answer = client.post("/predict", json={"inputs": text})
        except httpx.TransportError as error:
            self.seen["refused" if isinstance(error, httpx.ConnectError) else "lost"] += 1
            return False
        if answer.status_code in (429, 503):
            self.seen[str(answer.status_code)] += 1
            return False
        found = answer.status_code, answer.json()[0]["label"], answer.headers["x-offramp-exit-layer"]
        if found != (200, *self.expected[text]):
            self.wrong.append((text, found))
        self.seen["answered"] += 1
        return True

    def wait_for(self, more: int) -> None:
        """Until so many more are answered."""
        goal, end = self.seen["answered"] + more, time.monotonic() + FOR
        while self.seen["answered"] < goal:
            assert time.monotonic() < end, self.seen
            time.sleep(0.01)


@contextmanager
def load_on(model: Path) -> Iterator[tuple[Server, Load]]:
    texts = [text for text, _ in reviews(200, seed=5)]
    answers = offramp.Engine(model, backend="torch")(texts)
    expected = {text: (str(one.label), str(one.exit_layer)) for text, one in zip(texts, answers, strict=True)}
    server = Server(model)
    load = Load(server.address, expected)
    for thread in load.threads:
        thread.start()
    try:
        yield server, load
    finally:
        load.stop.set()
        for thread in load.threads:
            thread.join(FOR)
        server.process.kill()
        server.process.communicate()


def test_a_server_that_is_killed_comes_back_and_no_answer_is_wrong(calibrated: Path) -> None:
    with load_on(calibrated) as (server, load):
        for _ in range(2):
            load.wait_for(300)
            assert server.end(signal.SIGKILL)[0] == -signal.SIGKILL
            server.start()
        load.wait_for(300)
    assert load.wrong == []
    assert load.seen["refused"] > 0


def test_a_server_that_is_told_to_stop_loses_nothing_it_has_accepted(calibrated: Path) -> None:
    with load_on(calibrated) as (server, load):
        for _ in range(2):
            load.wait_for(300)
            assert server.end(signal.SIGTERM) == (0, "")
            server.start()
        load.wait_for(300)
    assert load.wrong == []
    assert load.seen["refused"] > 0
    # Connections that are idle are closed; a request may be sent at that very moment, and is retried.
    assert load.seen["lost"] <= 3, load.seen
