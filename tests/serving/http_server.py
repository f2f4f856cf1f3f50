"""The application on a port of this machine, around a real service or one that waits for a test."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

import offramp
from offramp.models import MultiExitModel
from offramp.serving.answers import Answer, OperatingPoint
from offramp.serving.operating_points import OperatingPoints
from offramp.serving.server import bound, config_of, service_of
from offramp.serving.settings import Settings
from offramp.tasks import own_task
from tests.calibration.made_model import NAMES, labelled_file, settled_model

PATIENCE = 20.0
"""Seconds that a test waits for what should come at once."""


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with a policy, and a menu of others."""
    folder = tmp_path_factory.mktemp("served")
    model = settled_model(folder / "reviews")
    labelled_file(folder / "rows.csv", model, 700, seed=3)
    rows = own_task(test=folder / "rows.csv", text="review", label="verdict", labels=NAMES)
    offramp.calibrate(model, rows, split="test", max_loss=0.05, consistency=True)
    return model


@contextmanager
def serving(settings: Settings, service: Any = None, port: int = 0) -> Iterator[str]:
    """The address of a server in a thread of this process; it drains when the test is done with it."""
    with stoppable(settings, service, port) as (address, _):
        yield address


@contextmanager
def stoppable(settings: Settings, service: Any = None, port: int = 0) -> Iterator[tuple[str, uvicorn.Server]]:
    """The same, with the server to be told to stop."""
    listener = bound("127.0.0.1", port)
    server = uvicorn.Server(config_of(settings, service or service_of(settings)))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert server.started, "the server did not start"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def client_of(settings: Settings, service: Any = None, **options: Any) -> Iterator[httpx.Client]:
    with serving(settings, service) as address, httpx.Client(base_url=address, timeout=PATIENCE, **options) as client:
        yield client


def settings_of(model: Path, **changed: Any) -> Settings:
    return Settings(str(model), **{"backend": "torch", "audit": 0.0, "drain": 5.0, **changed})


def until(holds: Callable[[], Any]) -> None:
    """Wait for something that is about to be."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


class Waiting:
    """A service that answers once the test opens its gate, or fails as the test wants it to."""

    def __init__(self, model: MultiExitModel, error: Exception | None = None, open: bool = False) -> None:
        self.model = model
        self.points = OperatingPoints(model, None)
        self.metrics = self
        self.name = "waiting"
        self.ready = False
        self.error = error
        self.gate = threading.Event()
        self.counted: Counter[str] = Counter()
        self.started = self.answered = self.cancelled = 0
        self.deadlines: list[float | None] = []
        if open:
            self.gate.set()

    async def start(self) -> None:
        self.ready = True

    async def drain(self, timeout_s: float) -> bool:
        self.ready = False
        return True

    async def answer(
        self, texts: Sequence[Any], point: OperatingPoint, *, truncate: bool, deadline_s: float | None
    ) -> list[Answer]:
        self.started += 1
        self.deadlines.append(deadline_s)
        try:
            while not self.gate.is_set():
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        self.answered += 1
        scores = (1.0,) + (0.0,) * (self.model.outputs - 1)
        return [Answer("bad", 1.0, scores, scores, 1, 4, point, 3, 0.0, 0.0, 0.0) for _ in texts]

    def info(self) -> dict[str, Any]:
        return {"name": self.name}

    def stats(self) -> dict[str, Any]:
        return {"answered": self.answered}

    def count_request(self, outcome: str) -> None:
        self.counted[outcome] += 1


def is_refused(answer: httpx.Response, status: int, match: str) -> None:
    """JSON, with the status and words that say what is wrong."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert set(said) == {"error", "error_type"}
    assert re.search(match, said["error"]), said["error"]
    assert "\n" not in said["error"]
