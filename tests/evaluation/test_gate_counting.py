"""What gates keep is counted as it happened, and costs what EBERT's formula says."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.evaluation import ModelShape, Results, Trace
from offramp.evaluation.flops import GateCounts, ebert_flops_to, elue_macs_to
from offramp.evaluation.gate_counting import GateCounting, flops_of
from offramp.evaluation.trace_base import in_columns
from offramp.models import GateSettings, Kept, MultiExitModel
from tests.evaluation.made_traces import batch_of, gated_trace, random_rows, random_trace, trace_of
from tests.tiny import FAMILIES, tiny_gated_model, tiny_model

LENGTHS = np.array([3, 17, 64])


def gated_model(family: str = "bert", block: int = 1, **options: Any) -> MultiExitModel:
    return tiny_gated_model(family, GateSettings(sparsity=0.4, block=block), **options)


@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_counts_are_those_of_each_row_alone(family: str, block: int) -> None:
    model, rows = gated_model(family, block), random_rows(9)
    trace = trace_of(model, rows, batch_size=4)
    alone = [model.run(**batch_of([row])).gates for row in rows]
    for layer in range(model.backbone.depth):
        heads = np.stack([kept[layer].heads[0].detach().numpy() for kept in alone])  # (N, heads)
        neurons = np.stack([kept[layer].neurons[0].detach().numpy() for kept in alone])
        assert trace.heads_kept[layer].tolist() == heads.sum(1).tolist()
        assert trace.neurons_kept[layer].tolist() == (block * neurons.sum(1)).tolist()
        np.testing.assert_allclose(trace.head_rates[layer], heads.mean(0))
        np.testing.assert_allclose(trace.neuron_rates[layer], neurons.mean(0))
    assert np.ptp(trace.heads_kept, axis=1).max() > 0, "no gate depends on the input: the test says nothing"
    assert np.ptp(trace.neurons_kept, axis=1).max() > 0


@pytest.mark.parametrize("block", [1, 8])
def test_report_against_a_hand_computation(block: int) -> None:
    """Row by row in plain Python: kept heads · F_h + kept neurons · 4Ld + predictors; d = 16, 4 heads 4 wide."""
    model, rows = gated_model(block=block), random_rows(9)
    report = trace_of(model, rows).results().gates
    predictors = 4 * (2 * 64 * (16 + 4) + 2 * 64 * (16 + 24 // block))
    original, dynamic, heads_of_first = [], [], []
    for row in rows:
        length, kept = len(row), model.run(**batch_of([row])).gates
        head = 2 * length * 4 * 16 * 3 + 2 * length**2 * 4 * 2 + 2 * length * 16 * 4
        heads = sum(float(layer.heads.sum()) for layer in kept)
        neurons = block * sum(float(layer.neurons.sum()) for layer in kept)
        original.append(4 * (4 * head + 4 * length * 16 * 24))
        dynamic.append(heads * head + neurons * 4 * length * 16 + predictors)
        heads_of_first.append(float(kept[0].heads.mean()))
    assert report.original_gflops == pytest.approx(sum(original) / len(rows) / 1e9)
    assert report.dynamic_gflops == pytest.approx(sum(dynamic) / len(rows) / 1e9)
    assert report.ratio == pytest.approx(sum(dynamic) / sum(original))
    assert report.heads[0] == pytest.approx(sum(heads_of_first) / len(rows))
    assert (len(report.head_rates), len(report.head_rates[0])) == (4, 4)
    assert [len(row) for row in report.neuron_rates] == [24 // block] * 4


def test_points_count_only_the_layers_that_ran() -> None:
    trace = trace_of(gated_model(), random_rows(9))
    kept = ebert_flops_to(trace.shape, trace.lengths, 2, trace.gates)
    assert trace.point("fixed(2)").ebert_mflops == pytest.approx(kept.mean() / 1e6)
    exact = elue_macs_to(trace.shape, trace.lengths, 2, 2, trace.gates)
    assert trace.mflops[1] == pytest.approx(2 * exact / 1e6)


@pytest.mark.parametrize("exits", [0, 1, 3])
@pytest.mark.parametrize("layer", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_on_is_ungated_and_the_predictors(family: str, layer: int, exits: int) -> None:
    shape = ModelShape.of(tiny_model(family))
    predictors = np.array([100.0, 20.0, 3.0, 1000.0])
    every = (np.full((4, 3), shape.heads), np.full((4, 3), shape.intermediate))
    gates = GateCounts(*every, predictors)
    more = predictors[:layer].sum()
    ungated = ebert_flops_to(shape, LENGTHS, layer)
    np.testing.assert_allclose(ebert_flops_to(shape, LENGTHS, layer, gates), ungated + more)
    ungated = elue_macs_to(shape, LENGTHS, layer, exits)
    np.testing.assert_allclose(elue_macs_to(shape, LENGTHS, layer, exits, gates), ungated + more / 2)


def test_all_off_leaves_norms_exits_and_predictors() -> None:
    shape = ModelShape.of(tiny_model())
    nothing = np.zeros((4, 3), dtype=np.int64)
    gates = GateCounts(nothing, nothing, np.full(4, 7.0))
    assert ebert_flops_to(shape, LENGTHS, 4, gates).tolist() == [28, 28, 28]
    rest = shape.elue_macs(LENGTHS, 0) + 4 * 4 * LENGTHS * 16 + 14
    assert elue_macs_to(shape, LENGTHS, 4, 1, gates).tolist() == rest.tolist()


def test_cost_of_a_predictor() -> None:
    gates = gated_model(block=8).gates.layer(0)
    assert flops_of(gates.heads) == 2 * 64 * 16 + 2 * 64 * 4
    assert flops_of(gates.neurons) == 2 * 64 * 16 + 2 * 64 * 3
    gates.heads.predictor = None
    assert flops_of(gates.heads) == 0


def test_deleted_units_are_nan_however_many_layers_lost_them() -> None:
    model = gated_model(block=8)
    for number in range(4):  # as folding leaves them: every layer has lost a head, the last one a block too
        layer = model.gates.layer(number)
        layer.heads.state = torch.zeros(3 if number else 0)
        layer.neurons.state = torch.zeros(2 if number == 3 else 3)
    counting = GateCounting(model, 2)
    first = Kept(torch.zeros(2, 0), torch.ones(2, 3))
    middle = Kept(torch.tensor([[1.0, 0, 1], [1, 0, 0]]), torch.ones(2, 3))
    counting.add([1, 0], [first, middle, middle, Kept(middle.heads, torch.ones(2, 2))])
    fields = counting.fields()
    assert fields["heads_kept"].tolist() == [[0, 0], [1, 2], [1, 2], [1, 2]]
    assert fields["neurons_kept"].tolist() == [[24, 24], [24, 24], [24, 24], [16, 16]]
    nan = math.nan
    np.testing.assert_array_equal(fields["head_rates"], [[nan] * 4, *[[1, 0, 0.5, nan]] * 3])
    np.testing.assert_array_equal(fields["neuron_rates"], [[1, 1, 1]] * 3 + [[1, 1, nan]])


def test_columns_are_means_of_what_is_there() -> None:
    rates = np.array([[0, 1, 1, 1, 0.5, math.nan, math.nan, math.nan]])
    np.testing.assert_array_equal(in_columns(rates, 4), [[0.5, 1, 0.5, math.nan]])
    assert in_columns(rates, 8) is rates
    assert in_columns(np.ones((2, 3072))).shape == (2, 64)


def test_save_and_load(tmp_path: Path) -> None:
    trace = gated_trace()
    again = Trace.load(trace.save(tmp_path / "trace.npz"))
    for field in dataclasses.fields(Trace):
        ours, theirs = getattr(trace, field.name), getattr(again, field.name)
        if isinstance(ours, np.ndarray):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
        else:
            assert ours == theirs, field.name
    results = trace.results()
    assert again.results() == results
    assert results.gates.head_rates[2][8:] == [trace.head_rates[2, 8], None, None, None]
    results.write(tmp_path / "results.json")
    assert Results.read(tmp_path / "results.json") == results


def test_none_without_gates() -> None:
    assert random_trace().results().gates is None
    assert gated_trace(head_rates=None).gate_report() is None
    assert trace_of(tiny_model(), random_rows(3)).gates is None


def test_gates_that_are_held_open_save_nothing() -> None:
    model, rows = gated_model(), random_rows(3)
    model.gates.set_mode("open")
    trace = trace_of(model, rows)
    assert trace.gate_report() is None
    np.testing.assert_allclose(trace.mflops, trace_of(tiny_model(), rows).mflops)
