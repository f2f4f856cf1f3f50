"""Where the numbers were made."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from offramp.engine.backends import Setting
from offramp.engine.processor import processor_title

LIBRARIES = ("offramp", "torch", "transformers", "onnxruntime", "triton", "openvino")


def about_machine(setting: Setting) -> dict[str, Any]:
    """Processor, cores, threads, GPU and versions."""
    about: dict[str, Any] = {"processor": processor_title(), "cores": os.cpu_count(), "threads": setting.threads}
    if setting.device.type == "cuda":
        about["gpu"] = torch.cuda.get_device_name(setting.device)
    return about | {"versions": {"python": platform.python_version(), **_versions()}}


def _versions() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found
