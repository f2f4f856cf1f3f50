"""Counting what the gates of a model keep, in the pass that makes a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from offramp.evaluation.flops import GateCounts
from offramp.models import Kept, MultiExitModel
from offramp.models.gates import UnitGates


class GateCounting:
    """How many heads and neurons each layer kept for each input, and how often each was kept."""

    def __init__(self, model: MultiExitModel, inputs: int) -> None:
        assert model.gates is not None
        self.layers = [model.gates.layer(index) for index in range(model.backbone.depth)]
        self.block = model.gates.block
        config = model.config.backbone_config
        self.units = config.num_attention_heads, config.intermediate_size // self.block  # before folding deleted some
        self.heads = np.zeros((len(self.layers), inputs), dtype=np.int64)
        self.neurons = np.zeros_like(self.heads)
        self.head_sums = [np.zeros(len(layer.heads.state)) for layer in self.layers]
        self.neuron_sums = [np.zeros(len(layer.neurons.state)) for layer in self.layers]

    def add(self, inputs: Sequence[int], kept: Sequence[Kept]) -> None:
        """Count a batch; `inputs` are the numbers of its rows."""
        for layer, (heads, neurons) in enumerate(kept):
            of_heads, of_neurons = heads.float().cpu().numpy(), neurons.float().cpu().numpy()
            self.heads[layer, inputs] = of_heads.sum(1).round()
            self.neurons[layer, inputs] = self.block * of_neurons.sum(1).round()
            self.head_sums[layer] += of_heads.sum(0)
            self.neuron_sums[layer] += of_neurons.sum(0)

    def counts(self) -> GateCounts:
        predictors = np.array([flops_of(layer.heads) + flops_of(layer.neurons) for layer in self.layers])
        return GateCounts(self.heads, self.neurons, predictors)

    def fields(self) -> dict[str, Any]:
        """As a trace holds them."""
        inputs = max(1, self.heads.shape[1])
        return {
            "heads_kept": self.heads,
            "neurons_kept": self.neurons,
            "predictor_flops": self.counts().predictors,
            "head_rates": side_by_side(self.head_sums, self.units[0]) / inputs,
            "neuron_rates": side_by_side(self.neuron_sums, self.units[1]) / inputs,
        }


def flops_of(units: UnitGates) -> float:
    """Operations of a predictor for one input, two for each multiply-add."""
    linears = [module for module in units.modules() if isinstance(module, nn.Linear)]
    return float(sum(2 * linear.in_features * linear.out_features for linear in linears))


def side_by_side(rows: Sequence[NDArray[np.float64]], columns: int) -> NDArray[np.float64]:
    """Rows of unlike lengths in one array, with NaN where there is nothing."""
    table = np.full((len(rows), columns), np.nan)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table
