"""DeeBERT's `.npy` files, for plotting scripts that read them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from offramp.engine import Engine
from offramp.errors import OfframpError
from offramp.evaluation.trace_base import TraceBase
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.policies.entropy import DEEBERT, Entropy
from offramp.tasks.encoding import Row
from offramp.whole_file import whole_bytes

WARM_UP = 3
KEPT = ("f1", "matthews", "accuracy")
"""The score that DeeBERT's program keeps is the first of these that the task has."""


Seconds = Callable[[Policy], float]
"""The time that all rows take one by one under a policy."""


def write_legacy_arrays(trace: TraceBase, folder: str | Path, seconds: Seconds) -> list[Path]:
    """`entropy_<S>.npy` for each of DeeBERT's thresholds, and `each_layer.npy`.

    An `entropy_<S>.npy` is a pickled array of objects, as in the original: exit layers and their counts, measured
    seconds, cost ratio, score. `each_layer.npy` has a score for each layer that has an exit, the main head's for the
    last one: DeeBERT's untrained last highway has none, where it was kept.
    """
    if not trace.labelled or trace.kind != "classification":
        raise OfframpError("DeeBERT's arrays hold scores of labels: they need a labelled classification task")
    metric = next((metric for metric in KEPT if metric in trace.metrics), trace.metrics[0])
    folder = Path(folder)
    of_layer = {one.layer: one.scores[metric] for one in trace.scores()}  # of two exits after a layer the later
    arrays = {"each_layer.npy": np.array(list(of_layer.values()))}
    for threshold in DEEBERT:
        policy = Entropy(threshold)
        point = trace.point(policy)
        content = [point.exits, seconds(policy), point.cost, point.scores[metric]]
        arrays[f"entropy_{threshold}.npy"] = np.array(content, dtype=object)
    for name, array in arrays.items():
        with whole_bytes(folder / name) as file:
            np.save(file, array, allow_pickle=True)
    return [folder / name for name in arrays]


def one_by_one(model: MultiExitModel, rows: Sequence[Row], **settings: Any) -> Seconds:
    """Measures as DeeBERT's program does, all rows one at a time, tokenised before; the engine runs them."""

    def seconds(policy: Policy) -> float:
        engine = Engine(model, policy, **settings)
        for row in rows[:WARM_UP]:
            list(engine.answer_rows([row]))
        started = time.perf_counter()
        for row in rows:
            list(engine.answer_rows([row]))
        return time.perf_counter() - started

    return seconds
