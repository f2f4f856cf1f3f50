"""What the processor really does, not what it says: tried once in a process that may die, and remembered.

Some virtual machines advertise instructions (AMX) that end the process when they are used; torch in bf16 uses them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import torch

from offramp.errors import OfframpError, one_line
from offramp.whole_file import whole_file

CAP = "ONEDNN_MAX_CPU_ISA"
CAPPED = "AVX512_CORE_FP16"
"""The most that torch's library of products may use, so that it leaves AMX alone."""
SECONDS = 120
"""For a try: importing torch on a busy machine takes most of it."""

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
        os.environ[CAP] = CAPPED  # read when the first such product is made
        return
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
    environment = {**os.environ, CAP: CAPPED} if capped else dict(os.environ)
    command = [sys.executable, "-c", TRIES[precision]]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OfframpError(f"{precision} could not be tried on this processor ({one_line(error)}): use fp32") from error
    if done.returncode > 0:  # it ended by itself, so that is not the processor's doing, and may be mended
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise OfframpError(f"{precision} could not be tried on this processor ({said[:120]}): use fp32")
    return done.returncode == 0


def read_known(place: Path) -> dict[str, bool]:
    try:
        known = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def memory_file() -> Path:
    """Where answers are kept: one file for each processor, torch and cap."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offramp"
    about = "|".join([processor_name(), torch.__version__, platform.platform(), os.environ.get(CAP, "")])
    return cache / f"processor-{hashlib.blake2b(about.encode(), digest_size=8).hexdigest()}.json"


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
