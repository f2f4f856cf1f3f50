"""Ray: many rows with a worker or a machine lost in the middle, and a server that grows under load.

    OMP_NUM_THREADS=1 python benchmarks/ray_runs.py --out benchmarks/results/ray.json

The models are tiny: what is looked at is whether every row is answered once and as without Ray, and whether replicas
come, not how fast a model is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
from predict_memory import WORDS, make_data, make_model

from offramp.prediction.files import open_writer
from offramp.prediction.part_folder import MANIFEST, RECEIPTS
from offramp.tasks.tables import read_table

POLICY = "entropy(0.3)"
FILE_WORKER, REPLICA = "MapWorker(Map(_Worker))", "ServeReplica:offramp:offramp"
"""What Ray calls their processes."""


def workers(title: str, root: int) -> list[int]:
    """The processes below one that Ray calls so."""
    children: dict[int, list[int]] = {}
    titles: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            titles[int(path.name)] = (path / "cmdline").read_text()
        except OSError:  # it ended meanwhile
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(path.name))
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found += [pid for pid in below if titles[pid].startswith(f"ray::{title}")]
    return found


Lose = Callable[[subprocess.Popen[bytes]], None]


def offramp(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "offramp", *map(str, arguments)]


def files(work: Path, rows: int, rows_per_part: int = 2000) -> dict[str, Any]:
    """Two workers on this machine, one of which is killed half way."""

    def kill(running: subprocess.Popen[bytes]) -> None:
        os.kill(workers(FILE_WORKER, running.pid)[0], signal.SIGKILL)

    return _with_a_loss(work, rows, rows_per_part, kill, {})


def machine_lost(work: Path, rows: int, rows_per_part: int = 500) -> dict[str, Any]:
    """A cluster of two machines (that are one), with a worker on each; one is gone half way, with all it held."""
    from ray.cluster_utils import Cluster

    size: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        second = cluster.add_node(**size)
        lose = partial(cluster.remove_node, second, allow_graceful=False)
        return _with_a_loss(work, rows, rows_per_part, lambda _: lose(), {"RAY_ADDRESS": cluster.address})
    finally:
        cluster.shutdown()


def _with_a_loss(work: Path, rows: int, rows_per_part: int, lose: Lose, where: dict[str, str]) -> dict[str, Any]:
    """Answer a folder by Ray with something lost half way, and each of its files without Ray; compare."""
    model, folder, out = work / "model", work / "in", work / "answered"
    folder.mkdir(parents=True)
    make_model(model)
    make_data(work / "all.csv", rows)
    everything = [record.values for record in read_table(work / "all.csv")]
    cuts = {"a.csv": everything[: rows // 2], "b.jsonl": everything[rows // 2 : rows * 4 // 5]}
    cuts |= {"c/d.parquet": everything[rows * 4 // 5 :]}
    for name, some in cuts.items():
        writer = open_writer(folder / name, ("id", "text"))
        writer.write(some)
        writer.close()
    options = ("--policy", POLICY, "--keep", "id", "--threads", 1)
    started = time.monotonic()
    for name in cuts:
        single = work / "single" / f"{name}.jsonl"
        subprocess.run(offramp("predict", model, folder / name, "--out", single, *options), check=True)
    alone = time.monotonic() - started
    parts = ("--engine", "ray", "--workers", 2, "--rows-per-part", rows_per_part)
    command = offramp("predict", model, folder, "--out", out, *options, *parts)
    started = time.monotonic()
    with subprocess.Popen(command, env={**os.environ, **where}) as running:
        done = _half_way(running, out / RECEIPTS, rows // rows_per_part // 2)
        lose(running)
    seconds = time.monotonic() - started
    return {
        "rows": rows,
        "files": len(cuts),
        "workers": 2,
        "rows_per_part": rows_per_part,
        "policy": POLICY,
        "status": running.returncode,
        "lost_after_rows": done * rows_per_part,
        "single_process_seconds": round(alone, 1),
        "ray_seconds": round(seconds, 1),
        "manifest": json.loads((out / MANIFEST).read_text())["finished"],
        **compared(work, list(cuts)),
    }


def _half_way(running: subprocess.Popen[bytes], receipts: Path, parts: int) -> int:
    """Wait until so many parts are answered; how many are."""
    while running.poll() is None:
        done = len(receipts.read_text().splitlines()) if receipts.is_file() else 0
        if done >= parts:
            return done
        time.sleep(0.02)
    raise SystemExit("the run was over before anything could be lost")


def compared(work: Path, names: list[str]) -> dict[str, Any]:
    """Every row of the parts, in their order, against the file that was answered without Ray."""
    found, more, twice, other, difference = 0, 0, 0, 0, 0.0
    seen: set[str] = set()
    for name in names:
        parts = sorted((work / "answered" / name).glob("*part-*"))
        ours = [record.values for part in parts for record in read_table(part)]
        theirs = [record.values for record in read_table(work / "single" / f"{name}.jsonl")]
        found += len(ours)
        more += abs(len(ours) - len(theirs))
        for one, expected in zip(ours, theirs, strict=False):
            twice += one["id"] in seen
            seen.add(one["id"])
            other += any(one[key] != expected[key] for key in ("id", "label", "exit_layer"))
            difference = max(difference, abs(one["score"] - expected["score"]))
    return {
        "rows_out": found,
        "rows_missing_or_too_many": more,
        "rows_twice": twice,
        "rows_with_another_answer": other,
        "largest_difference_of_scores": round(difference, 7),
    }


def server(work: Path, clients: int = 32, texts: int = 300, patience: float = 180) -> dict[str, Any]:
    """The plain server and one on Ray side by side: the same answers; then load on the latter until it has grown."""
    model = work / "served"
    model.mkdir(parents=True)
    make_model(model)
    asked = [" ".join(WORDS[i : i + 2 + i % 30]) for i in range(texts)]
    options = ("--policy", POLICY, "--audit", 0, "--threads", 1)
    with listening(offramp("serve", model, *options)) as (_, plain):
        expected = answers(plain, asked)
    with listening(offramp("serve", model, *options, "--engine", "ray", "--max-replicas", 2)) as (running, ours):
        same = answers(ours, asked) == expected
        before = len(workers(REPLICA, running.pid))
        load = asyncio.run(under_load(ours, asked, expected, clients, lambda: _grown(running, patience)))
        after = len(workers(REPLICA, running.pid))
        running.send_signal(signal.SIGTERM)
        status = running.wait(120)
    return {
        "clients": clients,
        "policy": POLICY,
        "texts_compared": texts,
        "same_as_plain_server": same,
        "replicas_before_load": before,
        "replicas_under_load": after,
        "status_after_sigterm": status,
        **load,
    }


@contextmanager
def listening(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server on a free port, from when it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = subprocess.Popen([*command, "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        late = time.monotonic() + 180
        while True:
            try:
                if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if running.poll() is not None or time.monotonic() > late:
                raise SystemExit(f"{command} does not listen")
            time.sleep(0.2)
        yield running, url
    finally:
        running.terminate()
        running.wait(120)


def answers(url: str, texts: list[str]) -> list[tuple[str, int]]:
    """Label and exit layer of each text, asked one by one."""
    with httpx.Client(base_url=url, timeout=60) as client:
        return [_answer(client.post("/predict", json={"inputs": text})) for text in texts]


def _answer(response: httpx.Response) -> tuple[str, int]:
    response.raise_for_status()
    return response.json()[0]["label"], int(response.headers["x-offramp-exit-layer"])


def _grown(running: subprocess.Popen[bytes], patience: float) -> float | None:
    """Wait for a second replica; after how many seconds it came."""
    started = time.monotonic()
    while (seconds := time.monotonic() - started) < patience:
        if len(workers(REPLICA, running.pid)) >= 2:
            time.sleep(15)  # and now both answer
            return round(seconds, 1)
        time.sleep(0.5)
    return None


async def under_load(
    url: str, texts: list[str], expected: list[tuple[str, int]], clients: int, until: Any
) -> dict[str, Any]:
    """So many clients that ask one text after the other, until the function returns."""
    counts = {"requests": 0, "refused": 0, "other_answers": 0}
    over = asyncio.Event()

    async def ask(client: httpx.AsyncClient, number: int) -> None:
        while not over.is_set():
            number = (number + 1) % len(texts)
            response = await client.post("/predict", json={"inputs": texts[number]})
            counts["requests"] += 1
            if response.status_code != 200:
                counts["refused"] += 1
            else:
                counts["other_answers"] += _answer(response) != expected[number]

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        asking = [asyncio.create_task(ask(client, i * len(texts) // clients)) for i in range(clients)]
        grown = asyncio.create_task(asyncio.to_thread(until))
        started = time.monotonic()
        await asyncio.wait([grown, *asking], return_when=asyncio.FIRST_COMPLETED)
        seconds = time.monotonic() - started
        over.set()
        await asyncio.gather(*asking)
    return {"seconds_to_grow": await grown, **counts, "requests_per_second": round(counts["requests"] / seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = {
            "worker_killed": files(Path(work) / "files", given.rows),
            "machine_lost": machine_lost(Path(work) / "machine", 30_000),
            "server": server(Path(work) / "server"),
        }
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("ray", "torch", "offramp")}}
    found["machine"] = {"cores": os.cpu_count(), "processor": platform.processor() or platform.machine(), **versions}
    given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
