"""A CUDA graph whose capture broke off, and what is left as it was all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch


@contextmanager
def as_it_was_on_failure(device: torch.device, pool: Any) -> Iterator[None]:
    """A capture that CUDA broke off leaves its stream behind, and a random generator and an allocator that still
    believe in it.
    """
    stream = torch.cuda.current_stream(device)
    generator: Any = torch.cuda.default_generators[stream.device_index]
    state = generator.clone_state()
    try:
        yield
    except BaseException:
        torch.cuda.set_stream(stream)
        generator.graphsafe_set_state(state)
        with suppress(RuntimeError):  # it was ended in order
            torch._C._cuda_endAllocateToPool(stream.device_index, pool)
        raise
