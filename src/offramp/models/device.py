"""Where to compute."""

from __future__ import annotations

import torch

from offramp.errors import OfframpError, one_line


def find_device(name: str) -> torch.device:
    """The GPU if there is one (`auto`), or the device of that name."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise OfframpError(f"device {name!r} cannot be used ({one_line(error, 80)}): say auto, cpu or cuda") from error
