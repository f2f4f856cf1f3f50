"""What offramp will use where nothing is asked for: settled by the engine, not guessed beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from offramp.doctor.findings import Finding, better
from offramp.doctor.libraries import check_torch
from offramp.doctor.machine import usable_cores

PART = "what offramp uses"
SIZES = ("tiny", "bert-base")
"""Shapes of `offramp bench`: what is best for a model depends on its size."""


def graphics() -> Iterator[Finding]:
    check_torch()
    import torch

    if not torch.cuda.is_available():
        driver = shutil.which("nvidia-smi")
        if driver and torch.version.cuda is None:
            advice = f"a torch made with CUDA: there is a driver for GPUs here, and {torch.__version__} is made without"
            yield better("machine", "GPU", "none that torch can use", advice)
        else:
            yield Finding("machine", "GPU", "none")
        return
    for number in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(number)
        free, total = torch.cuda.mem_get_info(number)
        bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
        value = f"{about.name}, {total / 1e9:.1f} GB, {free / 1e9:.1f} GB of them free"
        yield Finding("machine", f"GPU {number}", f"{value}, compute capability {about.major}.{about.minor}, {bf16}")


def settings() -> Iterator[Finding]:
    """Device, precision and backend, by size of the model, and why not a faster backend."""
    check_torch()
    import torch

    from offramp.bench.workload import SHAPES, model_of
    from offramp.engine.backends import choose, why_not

    for name in SIZES:
        with torch.device("meta"):  # its size is all that counts
            model = model_of(SHAPES[name])
        chosen = choose(model, "auto", "auto", "auto", None)
        value = f"{chosen.device}, {chosen.precision}, {chosen.backend}"
        what = f"for a model like {name}"
        fastest = "graphs" if chosen.device.type == "cuda" else "onnx"
        if reason := why_not(model, chosen.device, chosen.precision, fastest):
            yield better(PART, what, value, f"backend {fastest} would be faster: {reason}")
        else:
            yield Finding(PART, what, value)


def threads() -> Iterator[Finding]:
    check_torch()
    import torch

    count, cores = torch.get_num_threads(), usable_cores()
    value = f"{count} on the CPU"
    asked = os.environ.get("OMP_NUM_THREADS")
    if count > cores + 0.5:
        best = max(1, int(cores))
        advice = f"--threads {best}, or OMP_NUM_THREADS={best}: more threads than cores wait for each other"
        yield better(PART, "threads", value, advice)
    elif count < int(cores) and asked:
        yield better(PART, "threads", value, f"OMP_NUM_THREADS={asked} leaves cores idle: unset it, or say --threads")
    else:
        yield Finding(PART, "threads", value)
