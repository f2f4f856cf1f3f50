"""ONNX Runtime sessions."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from offramp.engine.onnx.graph import Graph, WeightsFile
from offramp.errors import needs

SLOWER_NORM = "SkipLayerNormFusion"
"""Makes one operator of a sum and a norm that takes five times as long as the two (ONNX Runtime 1.31)."""
FOLDER_OF_WEIGHTS = "session.model_external_initializers_file_folder_path"


def open_session(write: Callable[[Graph], bytes], threads: int) -> Any:
    """A session on so many threads, of the model that `write` makes in an empty graph.

    Its weights go through a file that is gone when the session is there; if none can be written, they lie in the graph.
    Threads spin for a while after each run, so two sessions with several threads each slow each other down many times.
    """
    runtime = needs("onnxruntime", "onnx")
    runtime.disable_telemetry_events()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    make = partial(runtime.InferenceSession, providers=["CPUExecutionProvider"], disabled_optimizers=[SLOWER_NORM])
    if sys.platform != "win32":  # where a file that is mapped cannot be deleted
        with suppress(OSError), tempfile.TemporaryDirectory(prefix="offramp-") as folder:
            with Path(folder, WeightsFile.NAME).open("wb") as file:
                model = write(Graph(beside=WeightsFile(file)))
            options.add_session_config_entry(FOLDER_OF_WEIGHTS, folder)
            return make(model, options)
    return make(write(Graph()), options)
