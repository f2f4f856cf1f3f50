"""A Ray cluster: the one that is there, or one on this machine for as long as it is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from offramp.errors import OfframpError, needs, one_line


@contextmanager
def cluster() -> Iterator[Any]:
    """Ray, connected: to what this process is connected to already, to RAY_ADDRESS, to a cluster that was started on
    this machine, or else to one of its own, which ends with the block. It reports to nobody.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what it says of its own inner life is in its log files
    ray = needs("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = os.environ.get("RAY_ADDRESS")
        raise OfframpError(
            f"no Ray cluster{f' at RAY_ADDRESS={where}' if where else ''} ({one_line(error)})"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Share:
    """How many workers there are, and what each of them gets."""

    workers: int
    threads: int
    gpus: int


def worker_share(ray: Any, device: str, threads: int | None, workers: int | None) -> Share:
    """A GPU for each worker where there are some and they are wanted, else a CPU for each of its threads.

    Without a number of workers, as many as the cluster has room for.
    """
    each, gpus = threads or 1, gpus_wanted(ray, device)
    there = ray.cluster_resources()
    room = int(there["GPU"] if gpus else there.get("CPU", 0) // each)
    if room < 1:
        raise OfframpError(f"no machine of the Ray cluster has {each} CPUs for a worker: say fewer --threads")
    if workers is not None and workers > room:
        raise OfframpError(f"{workers} workers, but the Ray cluster has room for {room}: say --workers {room} or fewer")
    return Share(workers or room, each, gpus)


def gpus_wanted(ray: Any, device: str) -> int:
    """Of each worker. Without a cluster yet, `auto` is no GPU."""
    if not ray.is_initialized():
        return int(device.startswith("cuda"))
    there = int(ray.cluster_resources().get("GPU", 0))
    if device.startswith("cuda") and not there:
        raise OfframpError(f"device {device!r}: the Ray cluster has no GPU")
    return int(there > 0 and (device == "auto" or device.startswith("cuda")))
