# mypy: ignore-errors
"""A kernel that is launched while the one before it still runs, where the device can (from Hopper on).

Between kernels that depend on each other the device rests for a microsecond or two, which at batch 1 is a large part of
a layer. A kernel that begins with `follow` is brought to the processors meanwhile, and waits there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an older Triton
    gdc_launch_dependents = gdc_wait = None

HOPPER = (9, 0)
CAN_FOLLOW = gdc_wait is not None and torch.cuda.is_available() and torch.cuda.get_device_capability() >= HOPPER
FOLLOWING = {"PDL": True, "launch_pdl": True} if CAN_FOLLOW else {"PDL": False}
"""How a kernel that begins with `follow` is launched."""


@triton.jit
def follow(PDL: tl.constexpr):
    """Wait for the kernel before this one, and let the next one come."""
    if PDL:
        gdc_wait()
        gdc_launch_dependents()
