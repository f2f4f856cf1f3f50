"""The encoder in any checkpoint, without exits: what a pre-training goes on from, or learns from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from offramp.backbones import Backbone
from offramp.interop import load
from offramp.interop.checkpoint import Checkpoint


def open_encoder(checkpoint: Checkpoint) -> Backbone:
    """Its backbone, in fp32."""
    with _without_warnings():  # of exits that are new: they are not used here
        backbone: Backbone = load(checkpoint).float().backbone
    return backbone


@contextmanager
def _without_warnings() -> Iterator[None]:
    log = logging.getLogger("offramp")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
