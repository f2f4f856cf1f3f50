"""A server that is killed and started again under load; and what many requests leave behind."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving_load import Load

from offramp.engine import Engine
from offramp.serving.jobs import Job, Request
from offramp.serving.server import bound
from tests.generated import reviews
from tests.prediction.models import model_folder
from tests.serving.services import serving

POLICY = "entropy(0.6131)"
TEXTS = [text for text, _ in reviews(50)]


@contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "offramp", "serve", str(folder), "--port", str(port), "--policy", POLICY]
    process = subprocess.Popen(
        [*command, "--device", "cpu", "--backend", "torch", "--threads", "1"], stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def is_ready(process: subprocess.Popen[str]) -> None:
    """It says so on its error output."""
    assert process.stderr is not None
    said = await asyncio.get_running_loop().run_in_executor(None, process.stderr.readline)
    assert "http://127.0.0.1" in said, said


def test_killed_and_started_again(tmp_path: Path) -> None:
    """Clients that try again have every answer, each the right one, whatever the server was doing when it ended."""
    folder = model_folder(tmp_path / "model")
    right = Engine(str(folder), POLICY, "cpu", backend="torch")(TEXTS)
    requests = [
        {"body": {"inputs": text}, "expected": {"label": answer.label, "score": answer.score}}
        for text, answer in zip(TEXTS, right, strict=True)
    ]
    with bound("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    load = Load(port, requests, retry=True)

    async def run() -> None:
        with server(folder, port) as first:
            await is_ready(first)
            asking = asyncio.create_task(load.in_turns(8, 0, requests=1200))
            while load.outcomes["answered"] < 300:
                await asyncio.sleep(0.005)
            first.send_signal(signal.SIGKILL)
        with server(folder, port) as second:
            await is_ready(second)
            await asyncio.wait_for(asking, 60)

    asyncio.run(run())
    assert load.outcomes["answered"] == load.sent
    assert load.sent >= 1200
    assert set(load.outcomes) <= {"answered", "hung up"}
    assert load.outcomes["hung up"] > 0, "nobody was interrupted: nothing is tested"
    assert not sum(client.too_many for client in load.clients)


def test_requests_leave_nothing_behind(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")

    def held() -> int:
        gc.collect()
        return sum(type(one) in (Job, Request) for one in gc.get_objects())

    async def ask(count: int) -> None:
        async with serving(folder, policy=POLICY, audit=0.2) as service:
            before = held()  # of other tests
            for start in range(0, count, 50):
                tasks = [asyncio.create_task(service.answer([text], deadline_s=20)) for text in TEXTS]
                if start % 100:
                    await asyncio.sleep(0)
                    for task in tasks[::3]:
                        task.cancel()
                await asyncio.wait(tasks)
            del tasks, task
            while service.flow.pending or service.batcher.idle:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert held() <= before
            assert len(asyncio.all_tasks()) == 1
            assert not service.flow._requests

    threads = threading.active_count()
    asyncio.run(ask(1000))
    assert threading.active_count() <= threads
