"""Which gates are kept together, and an order of units in which what is kept together lies together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models.runs import Flags

if TYPE_CHECKING:
    from offramp.models.modeling import MultiExitModel

Places = NDArray[np.intp]


@dataclass(frozen=True)
class KeepStatistics:
    """What the gates of every layer kept on calibration data."""

    heads: tuple[Flags, ...]
    """For each layer (rows, heads)."""
    neurons: tuple[Flags, ...]
    """For each layer (rows, neurons / block)."""

    def __len__(self) -> int:
        return len(self.heads[0])


def keep_statistics(model: MultiExitModel, batches: Iterable[Mapping[str, Tensor]]) -> KeepStatistics:
    """Run batches (`input_ids`, `attention_mask`, `token_type_ids`) and note which gates each row keeps."""
    if model.gates is None:
        raise OfframpError("this model has no gates to count: train one with --recipe ebert")
    was_training, was_mode = model.training, model.gates.mode
    model.eval()
    model.gates.set_mode("decide")
    heads: list[list[Flags]] = []
    neurons: list[list[Flags]] = []
    try:
        for batch in batches:
            with torch.no_grad():
                gates = model.run(batch["input_ids"], batch.get("attention_mask"), batch.get("token_type_ids")).gates
            assert gates is not None
            heads.append([(kept.heads > 0).cpu().numpy() for kept in gates])
            neurons.append([(kept.neurons > 0).cpu().numpy() for kept in gates])
    finally:
        model.gates.set_mode(was_mode)
        model.train(was_training)
    if not sum(len(rows[0]) for rows in heads):
        raise OfframpError("gates are folded by what they keep on calibration data: there is not one row of it")
    return KeepStatistics(layer_by_layer(heads), layer_by_layer(neurons))


def layer_by_layer(batches: list[list[Flags]]) -> tuple[Flags, ...]:
    return tuple(np.concatenate(layer) for layer in zip(*batches, strict=True))


def neighbours(kept: Flags) -> Places:
    """An order of the units of `kept` (rows, units): by keep rate, or by likeness if that makes fewer runs."""
    rate = kept.mean(0)
    orders = [np.argsort(-rate, kind="stable")]
    varying = np.flatnonzero((rate > 0) & (rate < 1))
    if len(varying) > 2:
        tree = linkage(kept[:, varying].T, "average", metric="hamming")
        like = varying[leaves_list(tree)]
        orders.append(np.concatenate([np.flatnonzero(rate == 1), like, np.flatnonzero(rate == 0)]))
    return min(orders, key=lambda order: mean_runs(kept[:, order]))


def mean_runs(kept: Flags) -> float:
    """How many slices a row of (rows, units) takes, on average."""
    starts = kept[:, 1:] & ~kept[:, :-1]
    return float((starts.sum(1) + kept[:, :1].sum(1)).mean())
