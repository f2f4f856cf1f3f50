"""Machine and versions, for the record of a training."""

from __future__ import annotations

import platform
import sys
from typing import Any

import torch
import transformers

from offramp import __version__


def about_this_run(processes: int = 1) -> dict[str, Any]:
    """What a training was computed with."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    versions = {"offramp": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return {"processes": processes, "device": device, "versions": {**versions, "python": sys.version.split()[0]}}
