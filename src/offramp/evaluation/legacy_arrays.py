"""DeeBERT's `.npy` files, for plotting scripts that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from offramp.errors import OfframpError
from offramp.evaluation.trace_base import TraceBase
from offramp.policies.entropy import DEEBERT, Entropy
from offramp.whole_file import whole_bytes

KEPT = ("f1", "matthews", "accuracy")
"""The score that DeeBERT's program keeps is the first of these that the task has."""


def write_legacy_arrays(trace: TraceBase, folder: str | Path) -> list[Path]:
    """`entropy_<S>.npy` for each of DeeBERT's thresholds, and `each_layer.npy`.

    An `entropy_<S>.npy` is a pickled array of objects, as in the original: exit layers and their counts, seconds, cost
    ratio, score. The seconds are those of the full pass times the cost ratio: nothing was run again.
    """
    if not trace.labelled or trace.kind != "classification":
        raise OfframpError("DeeBERT's arrays hold scores of labels: they need a labelled classification task")
    metric = next((metric for metric in KEPT if metric in trace.metrics), trace.metrics[0])
    folder = Path(folder)
    arrays = {"each_layer.npy": np.array([one.scores[metric] for one in trace.scores()])}
    for threshold in DEEBERT:
        point = trace.point(Entropy(threshold))
        content = [point.exits, trace.seconds * point.cost, point.cost, point.scores[metric]]
        arrays[f"entropy_{threshold}.npy"] = np.array(content, dtype=object)
    for name, array in arrays.items():
        with whole_bytes(folder / name) as file:
            np.save(file, array, allow_pickle=True)
    return [folder / name for name in arrays]
