"""NVIDIA's MPS: lets several processes compute on one GPU at the same time instead of by turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
TRY = "import torch; torch.zeros(1, device='cuda').cpu()"
PATIENCE = 90
"""Seconds in which a process has to be able to use the GPU through it."""


@contextmanager
def shared_gpu() -> Iterator[str]:
    """Start MPS for the processes begun in here; where it is not there, or does not work, they take turns.
    One that the environment names is taken: several commands can share it.

    Says which it is.
    """
    if FOLDERS[0] in os.environ:
        yield "MPS that was there"
        return
    if shutil.which(CONTROL) is None:
        yield "no MPS here"
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            os.environ[name] = folder
        running = _start()
        works = running and _works()
        try:
            if not works:
                _forget(running)
            yield "MPS" if works else "MPS does not work here"
        finally:
            if works:
                _forget(running)


def _start() -> bool:
    try:
        return subprocess.run([CONTROL, "-d"], capture_output=True, timeout=PATIENCE).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _works() -> bool:
    try:
        return subprocess.run([sys.executable, "-c", TRY], capture_output=True, timeout=PATIENCE).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _forget(running: bool) -> None:
    if running:
        subprocess.run([CONTROL], input="quit\n", text=True, capture_output=True, timeout=PATIENCE, check=False)
    for name in FOLDERS:
        os.environ.pop(name, None)
