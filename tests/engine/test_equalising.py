"""Channels of like size: what is looked at to get them, and what int8 gains by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from offramp.engine.onnx.equalising import divisors, largest_inputs
from offramp.engine.onnx.quantising import LARGEST, quantise
from tests.tiny import FAMILIES, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
def test_looking_leaves_no_trace(family: str) -> None:
    model = tiny_model(family).train()
    before = torch.get_rng_state()
    first, second = largest_inputs(model), largest_inputs(model)
    parts = [model.backbone.parts(index) for index in range(model.backbone.depth)]
    assert set(first) == {linear for part in parts for linear in (part.query, part.neurons)}
    for linear, found in first.items():
        assert found.shape == (model.backbone.hidden_size,)
        np.testing.assert_array_equal(found, second[linear], err_msg="dropout, or other tokens")
        assert not linear._forward_pre_hooks
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_tokens_that_are_no_numbers_are_overlooked() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.backbone.model.embeddings.word_embeddings.weight[::2] = torch.nan
    assert all(np.isfinite(found).all() for found in largest_inputs(model).values())


@pytest.mark.parametrize("channels", [[0.0, 0.0, 0.0], [0.0, 1.0, 200.0]])
@pytest.mark.parametrize("rows", [[0.0, 0.0, 0.0], [3.0, 0.0, 1e-4]])
def test_silent_channels_and_weights_of_zero(channels: list[float], rows: list[float]) -> None:
    by = divisors(np.array(channels, np.float32), np.array(rows, np.float32)[:, None])
    assert np.isfinite(by).all()
    assert np.isfinite(1 / by).all()


def test_a_large_channel_takes_little_from_the_others() -> None:
    """One channel is a hundred times as large as the others, and its weights are small, as in trained models."""
    draw = np.random.default_rng(0)
    given = draw.normal(size=(40, 64)).astype(np.float32)
    weight = draw.normal(size=(64, 32)).astype(np.float32)
    given[:, 5] *= 100
    weight[5] /= 20
    by = divisors(np.abs(given).max(0), weight)
    exact = given @ weight
    plain, equalised = (np.abs(in_int8(given / each, weight * each[:, None]) - exact).mean() for each in (by / by, by))
    assert equalised < 0.2 * plain


def in_int8(given: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """A product with one scale for the input and one for each output, as the runtime computes it."""
    step = (given.max() - given.min()) / 255
    quantised, scale = quantise(weight, LARGEST)
    product: NDArray[np.float32] = (np.rint(given / step) * step) @ (quantised * scale)
    return product
