"""ONNX Runtime sessions."""

from __future__ import annotations

from typing import Any

from offramp.errors import needs

SLOWER_NORM = "SkipLayerNormFusion"
"""Makes one operator of a sum and a norm that takes five times as long as the two (ONNX Runtime 1.31)."""


def open_session(model: bytes, threads: int) -> Any:
    """A session on so many threads.

    They spin for a while after each run, so two sessions with several threads each slow each other down many times.
    """
    runtime = needs("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return runtime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=[SLOWER_NORM]
    )
