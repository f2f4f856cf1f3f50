"""Load for a server, from a process of its own that takes little of the machine: requests over raw connections.

    python benchmarks/serving_load.py 8000 requests.json --clients 32 --seconds 10
    python benchmarks/serving_load.py 8000 requests.json --rate 40 --seconds 10
    python benchmarks/serving_load.py 8000 requests.json --clients 32 --requests 100000

`requests.json` is a list of {"body": …, "expected": …}: what is posted, in turns, and, where it is not null, the label
and score that must come back. With --clients each client sends its next request once it has its answer; with --rate
requests come at random times, whatever becomes of those before them. Prints what happened as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

CLOSE = 2e-3
"""How far a score may be from what is expected: it is written with all its digits, but computed in other company."""
END = b"\r\n\r\n"


class Client(asyncio.Protocol):
    """A connection that is kept: one request at a time, and its answer."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.buffer = b""
        self.waiter: asyncio.Future[tuple[int, bytes]] | None = None
        self.too_many = 0
        """Bytes that came and nobody had asked for."""
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.waiter is None:
            self.too_many += len(data)
            return
        head = self.buffer.find(END)
        if head < 0:
            return
        start = self.buffer.lower().find(b"content-length:", 0, head)
        length = int(self.buffer[start + 15 : self.buffer.find(b"\r\n", start)])
        end = head + len(END) + length
        if len(self.buffer) < end:
            return
        status, body = int(self.buffer[9:12]), self.buffer[head + len(END) : end]
        self.too_many += len(self.buffer) - end
        self.buffer = b""
        waiter, self.waiter = self.waiter, None
        if not waiter.done():
            waiter.set_result((status, body))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(ConnectionResetError("the server hung up"))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self.waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.waiter


class Load:
    """Requests in turns, and what came of them."""

    def __init__(self, port: int, requests: list[dict[str, Any]], retry: bool = False) -> None:
        self.port = port
        self.requests = [posted(request["body"]) for request in requests]
        self.expected = [request.get("expected") for request in requests]
        self.retry = retry
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        self.latencies: list[tuple[float, float]] = []
        """When each was answered, and how long that took."""
        self.clients: list[Client] = []
        self.started = 0.0

    async def connect(self) -> Client:
        while True:
            try:
                _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
            except OSError:
                if not self.retry:
                    raise
                await asyncio.sleep(0.05)
            else:
                self.clients.append(client)
                return client

    async def one(self, client: Client, since: float | None = None) -> Client:
        """Post the next request; where the server hangs up and that is to be lived with, post it again."""
        number, self.sent = self.sent, self.sent + 1
        place = number % len(self.requests)
        started = time.perf_counter() if since is None else since
        while True:
            try:
                status, body = await client.ask(self.requests[place])
                break
            except ConnectionResetError:
                self.outcomes["hung up"] += 1
                if not self.retry:
                    return await self.connect()
                client = await self.connect()
        now = time.perf_counter()
        self.latencies.append((now, now - started))
        self.outcomes[str(status) if status != 200 else self.verdict(place, body)] += 1
        return client

    def verdict(self, place: int, body: bytes) -> str:
        expected = self.expected[place]
        if expected is None:
            return "answered"
        best = json.loads(body)[0]
        same = best["label"] == expected["label"] and abs(best["score"] - expected["score"]) < CLOSE
        return "answered" if same else "wrong"

    async def in_turns(self, clients: int, seconds: float, requests: int | None) -> None:
        self.started = time.perf_counter()
        until = self.started + seconds

        async def client() -> None:
            mine = await self.connect()
            while (self.sent < requests) if requests is not None else (time.perf_counter() < until):
                mine = await self.one(mine)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def at_random(self, rate: float, seconds: float) -> None:
        """Each request on a connection that is free; latency counts from when it was to be sent."""
        draw, free, tasks = random.Random(0), [], set()
        self.started = now = time.perf_counter()
        due = now

        async def send(at: float) -> None:
            client = free.pop() if free else await self.connect()
            free.append(await self.one(client, at))

        while (due := due + draw.expovariate(rate)) < self.started + seconds:
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            task = asyncio.create_task(send(due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    def report(self, warm_up: float) -> dict[str, Any]:
        """Of what was answered after the warm-up."""
        counted = sorted(took for at, took in self.latencies if at >= self.started + warm_up)
        last = max((at for at, _ in self.latencies), default=self.started)
        seconds = last - self.started - warm_up

        def quantile(share: float) -> float:
            return round(1000 * counted[min(len(counted) - 1, int(share * len(counted)))], 3) if counted else 0.0

        return {
            "sent": self.sent,
            "outcomes": dict(self.outcomes),
            "unasked_bytes": sum(client.too_many for client in self.clients),
            "seconds": round(seconds, 3),
            "per_second": round(len(counted) / seconds, 3) if seconds > 0 else 0.0,
            "latency_ms": {name: quantile(share) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))},
        }


def posted(body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = "POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    return f"{head}{len(content)}\r\n\r\n".encode() + content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("requests_file", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, help="requests in a second, instead of clients")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=0.0, help="seconds at the start that are not counted")
    parser.add_argument("--requests", type=int, help="stop after so many, instead of after some time")
    parser.add_argument("--retry", action="store_true", help="post again what a server that went away did not answer")
    arguments = parser.parse_args()
    load = Load(arguments.port, json.loads(arguments.requests_file.read_text(encoding="utf-8")), arguments.retry)
    if arguments.rate is None:
        asyncio.run(load.in_turns(arguments.clients, arguments.seconds, arguments.requests))
    else:
        asyncio.run(load.at_random(arguments.rate, arguments.seconds))
    json.dump(load.report(arguments.warm_up), sys.stdout)


if __name__ == "__main__":
    main()
