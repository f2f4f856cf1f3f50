"""What the processor really does, not what it says: tried once in a process that may die, and remembered.

Some virtual machines advertise instructions (AMX) that end the process when they are used; torch in bf16 uses them.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from offramp.errors import OfframpError, one_line
from offramp.whole_file import whole_file

CAP = "ONEDNN_MAX_CPU_ISA"
CAPPED = "AVX512_CORE_FP16"
"""The most that torch's library of products may use, so that it leaves AMX alone."""
SECONDS = 120
"""For a try: importing torch on a busy machine takes most of it."""
SECONDS_HERE = 30
"""For a try in a copy of this process, which has imported torch already."""

TRIES = {
    "bf16": "import torch; torch.nn.Linear(64, 64).bfloat16()(torch.ones(8, 64, dtype=torch.bfloat16))",
    "int8": "from offramp.engine.onnx.trial import multiply_in_int8; multiply_in_int8()",
}
"""A product in each precision."""


def check_works(precision: str) -> None:
    """Refuse a precision that ends the process on this machine; make bf16 safe where it can be."""
    if works(precision):
        return
    if precision == "bf16" and works(precision, capped=True):
        os.environ[CAP] = CAPPED  # read when oneDNN is first used, in whatever precision: perhaps it was already
        if survives_here():
            return
        del os.environ[CAP]  # too late, and the next try is not to be told that all is well
        raise OfframpError(
            f"bf16 works on this processor without AMX alone, and this process has begun with it: set {CAP}={CAPPED} "
            "before Python starts, or use fp32"
        )
    raise OfframpError(f"{precision} does not work on this processor (tried in another process): use fp32")


def works(precision: str, capped: bool = False) -> bool:
    """Whether a product in this precision ends well, or kills the process; tried once, and the answer is kept."""
    place = memory_file()
    known = read_known(place)
    name = f"{precision} {CAPPED}" if capped else precision
    if name not in known:
        known[name] = try_it(precision, capped)
        with suppress(OfframpError), whole_file(place) as file:  # a home that cannot be written to: tried again
            json.dump(known, file)
    return known[name]


def try_it(precision: str, capped: bool) -> bool:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # the same offramp as here
    environment |= {CAP: CAPPED} if capped else {}
    command = [sys.executable, "-c", TRIES[precision]]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OfframpError(f"{precision} could not be tried on this processor ({one_line(error)}): use fp32") from error
    if done.returncode > 0:  # it ended by itself, so that is not the processor's doing, and may be mended
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise OfframpError(f"{precision} could not be tried on this processor ({said[:120]}): use fp32")
    return done.returncode == 0


def survives_here() -> bool:
    """Whether a product in bf16 ends well in a copy of this very process, with what its libraries have settled on."""
    if not hasattr(os, "fork"):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads that the copy has not: it needs none
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # to die here is an answer, and nobody has to read of it
            torch.set_num_threads(1)
            exec(TRIES["bf16"])
            os._exit(0)
        finally:
            os._exit(1)
    give_up = time.monotonic() + SECONDS_HERE
    while time.monotonic() < give_up:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def read_known(place: Path) -> dict[str, bool]:
    try:
        known = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def memory_file() -> Path:
    """Where answers are kept: one file for each processor, torch, ONNX Runtime and cap."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offramp"
    libraries = [torch.__version__, onnx_runtime()]
    about = "|".join([processor_name(), *libraries, platform.platform(), os.environ.get(CAP, "")])
    return cache / f"processor-{hashlib.blake2b(about.encode(), digest_size=8).hexdigest()}.json"


@lru_cache
def onnx_runtime() -> str:
    """Its version, whose products int8 is made of; nothing where there is none."""
    try:
        return version("onnxruntime")
    except PackageNotFoundError:
        return ""


@lru_cache
def processor_lines() -> tuple[str, ...]:
    """What the system says about the processor, line by line; nothing where that cannot be read."""
    try:
        return tuple(Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
    except OSError:
        return ()


def processor_line(name: str) -> str:
    return next((line for line in processor_lines() if line.split("\t")[0].strip() == name), "")


def processor_name() -> str:
    if not processor_lines():
        return platform.processor() or platform.machine()
    return "|".join(map(processor_line, ("model name", "cpu family", "model", "stepping")))


def processor_title() -> str:
    """As its maker calls it."""
    return processor_name().split("|")[0].split(":")[-1].strip()


def has_wide_dot_products() -> bool:
    """Whether int8 products are added up in 32 bits at once (VNNI)."""
    flags = set(processor_line("flags").split())
    return bool(flags & {"avx512_vnni", "avx_vnni"}) or platform.machine() in ("aarch64", "arm64")
