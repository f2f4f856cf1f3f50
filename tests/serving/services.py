"""Services around tiny models, started and drained in a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from offramp.serving.service import Service


@asynccontextmanager
async def serving(model: Path | Any, **settings: Any) -> AsyncIterator[Service]:
    """A service on one thread, audits off where they are not asked for."""
    service = Service(model, **{"device": "cpu", "backend": "torch", "threads": 1, "audit": 0.0, **settings})
    await service.start()
    try:
        yield service
    finally:
        await service.drain(30)


class Held:
    """Keeps the layers of a service from running, until they are let go."""

    def __init__(self, service: Service) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.rows = 0
        """Rows times layers that were run."""
        layers: Any = service.engine.runner.layers  # type: ignore[attr-defined]
        real = layers.layer

        def layer(index: int, hidden: Sequence[Any], then: Sequence[int]) -> list[Any]:
            self.began.set()
            self.go.wait(30)
            self.rows += len(hidden)
            return list(real(index, hidden, then))

        layers.layer = layer

    async def until_it_begins(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.began.wait, 30)


async def until(condition: Any, seconds: float = 20.0) -> None:
    """Wait for something that happens elsewhere."""
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")
