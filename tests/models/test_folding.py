"""Folding changes sizes and order, not answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp.errors import OfframpError
from offramp.models.folding import fold, left_in_order
from offramp.models.gate_order import KeepStatistics, keep_statistics, mean_runs, neighbours
from offramp.models.gates import ALWAYS_OFF, ALWAYS_ON
from offramp.models.skipping import Skipping
from tests.models.test_skipping import gated_model
from tests.tiny import FAMILIES, tiny_batch, tiny_model

CERTAIN = 1e6


def with_constant_gates(family: str, block: int) -> Any:
    """In every layer the first unit is always off, the second always on; ALBERT's third is off in one layer only."""
    model = gated_model(family, block)
    with torch.no_grad():
        for layer in model.gates.layers:
            for gates in (layer.heads, layer.neurons):
                gates.predictor[3].bias[:2] = torch.tensor([-CERTAIN, CERTAIN])
        model.gates.layers[0].neurons.predictor[3].bias[2] = -CERTAIN
        model.gates.layers[1].neurons.predictor[3].bias[2] = CERTAIN
    return model


def answers(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.stack(model(**tiny_batch(12)).exit_logits)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", [1, 4])
def test_folded_equals_unfolded_on_calibration_rows(family: str, block: int, tmp_path: Path) -> None:
    model = with_constant_gates(family, block)
    expected = answers(model)
    left = fold(model, keep_statistics(model, [tiny_batch(12)]))
    for index, layer in enumerate(left):
        gates = model.gates.layer(index)
        assert layer.heads <= 3
        assert layer.neurons <= 24 - block
        assert layer.predicted_heads < layer.heads
        assert layer.predicted_neurons < layer.neurons // block
        assert ALWAYS_ON in gates.neurons.state.tolist()
        if layer.predicted_neurons:
            assert gates.neurons.predictor[3].out_features == layer.predicted_neurons
    assert (ALWAYS_OFF in model.gates.layers[0].neurons.state.tolist()) == (family == "albert")
    torch.testing.assert_close(answers(model), expected, atol=2e-5, rtol=1e-4)
    model.skipping = Skipping(model)
    torch.testing.assert_close(answers(model), expected, atol=2e-5, rtol=1e-4)
    model.save_pretrained(tmp_path)
    again = offramp.load(tmp_path).eval()
    assert again.gates.settings == model.gates.settings
    torch.testing.assert_close(answers(again), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_order_alone_changes_no_answer(family: str) -> None:
    """No gate is constant by these statistics: nothing is deleted, everything moves."""
    model = gated_model(family, block=3)
    draw = np.random.default_rng(0)
    alternating = np.array([[0, 1], [1, 0]], dtype=bool)
    rows = [np.tile(alternating, (1, units // 2))[:, draw.permutation(units)] for units in (4, 8)]
    statistics = KeepStatistics((rows[0],) * 2, (rows[1],) * 2)
    expected, weights = answers(model), model.backbone.parts(0).neurons.weight.clone()
    left = fold(model, statistics)
    assert (left[0].heads, left[0].neurons, left[0].predicted_neurons) == (4, 24, 8)
    assert not torch.equal(model.backbone.parts(0).neurons.weight, weights)
    torch.testing.assert_close(answers(model), expected, atol=2e-5, rtol=1e-4)


def test_folding_twice_and_to_nothing() -> None:
    """All gates constant: no predictor is left; all off: no head and no neuron."""
    model = with_constant_gates("bert", 4)
    statistics = keep_statistics(model, [tiny_batch(12)])
    fold(model, statistics)
    expected = answers(model)
    left = fold(model, keep_statistics(model, [tiny_batch(12)]))
    assert model.config.gate_settings.folded == left
    torch.testing.assert_close(answers(model), expected, atol=2e-5, rtol=1e-4)
    nothing = KeepStatistics(
        tuple(np.zeros((1, layer.heads), dtype=bool) for layer in left),
        tuple(np.zeros((1, layer.neurons // 4), dtype=bool) for layer in left),
    )
    model.skipping = Skipping(model)
    left = fold(model, nothing)
    assert all((layer.heads, layer.neurons, layer.predicted_heads) == (0, 0, 0) for layer in left)
    assert all(layer.neurons.predictor is None for layer in model.gates.layers)
    skipped = answers(model)
    model.skipping = None
    torch.testing.assert_close(answers(model), skipped)


def test_constant_is_a_share() -> None:
    model = gated_model("bert", block=8)
    rows = np.ones((10, 3), dtype=bool)
    rows[0, 0], rows[1:, 1], rows[:5, 2] = False, False, False  # kept on 9, 1 and 5 of 10 rows
    statistics = KeepStatistics((np.ones((10, 4), dtype=bool),) * 2, (rows,) * 2)
    left = fold(model, statistics, constant=0.1)[0]
    assert (left.heads, left.predicted_heads, left.neurons, left.predicted_neurons) == (4, 0, 16, 1)
    assert model.gates.layers[0].neurons.state.tolist() == [ALWAYS_ON, 0]


def test_what_is_kept_together_lies_together() -> None:
    """Scattered groups of units become runs."""
    draw = np.random.default_rng(1)
    group = draw.integers(0, 6, 96)
    kept = (draw.random((200, 6)) < 0.5)[:, group]
    order = neighbours(kept)
    assert sorted(order.tolist()) == list(range(96))
    assert mean_runs(kept) > 20
    assert mean_runs(kept[:, order]) < 3


def test_large_layers_keep_whole_chunks() -> None:
    """One gate a neuron: what is left of a layer can still be cut into slices."""
    kept = np.ones((4, 600), dtype=bool)
    kept[:, ::2] = False
    assert len(left_in_order([kept], 0.0, block=1)) == 320  # 300 and 20 that are off
    assert len(left_in_order([kept], 0.0, block=2)) == 300


def test_statistics_count_what_is_kept() -> None:
    model = gated_model("bert").train()
    batches = [tiny_batch(5), tiny_batch(3, seed=1)]
    statistics = keep_statistics(model, iter(batches))
    assert model.training
    assert model.gates.mode == "sample"
    assert len(statistics) == 8
    model.eval()
    with torch.no_grad():
        kept = model.run(**batches[1]).gates[1].neurons.bool().numpy()
    assert (statistics.neurons[1][5:] == kept).all()


@pytest.mark.parametrize(
    ("message", "break_it"),
    [
        ("no gates", lambda: fold(tiny_model(), KeepStatistics((), ()))),
        ("no gates", lambda: keep_statistics(tiny_model(), [tiny_batch()])),
        ("not one row", lambda: keep_statistics(gated_model("bert"), [])),
        ("topk", lambda: fold(gated_model("bert", mode="topk"), KeepStatistics((), ()))),
        ("less than 0.5", lambda: fold(gated_model("bert"), KeepStatistics((), ()), constant=0.5)),
        ("another model", lambda: fold(gated_model("bert", 8), keep_statistics(gated_model("bert"), [tiny_batch()]))),
    ],
)
def test_bad_input(message: str, break_it: Any) -> None:
    with pytest.raises(OfframpError, match=message) as caught:
        break_it()
    assert "\n" not in str(caught.value)


def test_where_layers_share_weights_a_unit_may_be_off_in_one_of_them() -> None:
    model = gated_model("albert", block=8)
    seldom, always = np.zeros((10, 3), dtype=bool), np.ones((10, 3), dtype=bool)
    seldom[0] = True
    fold(model, KeepStatistics((np.ones((10, 4), dtype=bool),) * 2, (seldom, always)), constant=0.1)
    assert model.gates.layers[0].neurons.state.tolist() == [ALWAYS_OFF] * 3


def test_gates_that_are_held_open_are_counted_and_stay_so() -> None:
    model = gated_model("bert")
    model.gates.set_mode("open")
    assert len(keep_statistics(model, [tiny_batch()])) == 6
    assert model.gates.mode == "open"


def test_what_skips_goes_on_skipping() -> None:
    model = with_constant_gates("bert", 4)
    expected = answers(model)
    model.skipping = Skipping(model)
    fold(model, keep_statistics(model, [tiny_batch(12)]))
    assert model.skipping is not None
    torch.testing.assert_close(answers(model), expected, atol=2e-5, rtol=1e-4)
