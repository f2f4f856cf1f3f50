"""System, cores and memory: what this process may use of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from offramp.doctor.findings import Finding, better

PART = "machine"
GROUP = Path("/sys/fs/cgroup")
"""Where a container on Linux is told its share."""
FEW_GB = 2.0


def system() -> Iterator[Finding]:
    yield Finding(PART, "system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding(PART, "Python", f"{platform.python_version()} ({platform.python_implementation()})")


def cores() -> Iterator[Finding]:
    usable, there = usable_cores(), os.cpu_count() or 1
    value = f"{usable:g} may be used" + (f", of {there}" if usable < there else "")
    if usable < 2:
        advice = "two cores or more: tokens of the next texts are made while the model computes"
        yield better(PART, "cores", value, advice)
    else:
        yield Finding(PART, "cores", value)


def usable_cores() -> float:
    """Those this process may run on, or its share of their time where that is less."""
    cores = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
        share, period = (GROUP / "cpu.max").read_text().split()
        cores = min(cores, float(share) / float(period))
    return cores


def memory() -> Iterator[Finding]:
    about = import_module("psutil").virtual_memory()  # comes with accelerate
    total, free = about.total, about.available
    with suppress(OSError, ValueError):
        limit = int((GROUP / "memory.max").read_text())
        used = int((GROUP / "memory.current").read_text())
        total, free = min(total, limit), min(free, limit - used)
    value = f"{total / 1e9:.1f} GB, {free / 1e9:.1f} GB of them free"
    if free / 1e9 < FEW_GB:
        yield better(PART, "memory", value, f"{FEW_GB:g} GB free or more: a BERT-base takes about that while it trains")
    else:
        yield Finding(PART, "memory", value)
