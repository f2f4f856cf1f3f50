"""Layers that skip give what layers under masks give, whatever the gates say."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import OfframpError
from offramp.models import batch_layer, sliced_layer
from offramp.models import runs as planning
from offramp.models.gate_settings import GateSettings
from offramp.models.gates import Gates, UnitGates
from offramp.models.runs import runs, tiles_of
from offramp.models.skipping import Skipping
from offramp.models.sliced_layer import chunk_width
from tests.tiny import FAMILIES, tiny_batch, tiny_gated_model, tiny_model


def gated_model(family: str, block: int = 4, mode: Any = "gumbel", seed: int = 0) -> Any:
    return tiny_gated_model(family, GateSettings(0.4, heads=mode, neurons=mode, block=block), seed, layers=2)


def lean(gates: Gates, logit: float) -> None:
    """Make keeping (or, below 0, skipping) likelier; far from 0 it is certain."""
    with torch.no_grad():
        for module in gates.modules():
            if isinstance(module, UnitGates) and module.predictor is not None:
                module.predictor[3].bias.fill_(logit)


def both_ways(model: Any, batch: dict[str, Tensor]) -> tuple[Any, Any]:
    with torch.no_grad():
        model.skipping = None
        masked = model(**batch, output_hidden_states=True)
        model.skipping = Skipping(model)
        return masked, model(**batch, output_hidden_states=True)


def assert_same(masked: Any, skipped: Any) -> None:
    for expected, found in zip(masked.gates, skipped.gates, strict=True):
        for one, other in zip(expected, found, strict=True):
            assert torch.equal(one, other)
    for expected, found in zip(masked.hidden_states, skipped.hidden_states, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    block=st.sampled_from([1, 2, 3, 8, 24]),
    mode=st.sampled_from(["gumbel", "topk"]),
    rows=st.integers(1, 7),
    tokens=st.integers(2, 12),
    left=st.booleans(),
    logit=st.sampled_from([-1e6, -3.0, -1.0, 0.0, 1.0, 3.0, 1e6]),
    start=st.sampled_from([0, 3_000, 3_000_000]),
    chunk=st.sampled_from([4, 8, 64]),
    narrow=st.sampled_from([2, 16]),
    fewer_rows=st.sampled_from([0, 1_500_000]),
    seed=st.integers(0, 5),
)
def test_skipped_equals_masked(
    family: str,
    block: int,
    mode: str,
    rows: int,
    tokens: int,
    left: bool,
    logit: float,
    start: int,
    chunk: int,
    narrow: int,
    fewer_rows: int,
    seed: int,
) -> None:
    """Also where slices are so cheap that every gap is skipped, or so dear that all are computed."""
    model = gated_model(family, block, mode, seed)
    lean(model.gates, logit)
    batch = tiny_batch(rows, tokens, seed=seed)
    if left:
        batch = {name: tensor.flip(1) for name, tensor in batch.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "START", start)
        patch.setattr(planning, "FEWER_ROWS", fewer_rows)
        patch.setattr(sliced_layer, "CHUNK", chunk)
        patch.setattr(sliced_layer, "NARROW", narrow)
        masked, skipped = both_ways(model, batch)
    if mode == "gumbel" and abs(logit) == 1e6:
        assert all(bool((neurons == (logit > 0)).all()) for _, neurons in masked.gates)
    assert_same(masked, skipped)


def test_tiles_that_begin_in_the_middle_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring heads, kept by rows that are not the first and have padding of their own."""
    monkeypatch.setattr(planning, "FEWER_ROWS", 0)
    began: list[int] = []
    add_heads = batch_layer.add_heads

    def watched(layer: Any, batch: Any, tile: Any, *more: Any) -> None:
        began.append(tile.first_row)
        add_heads(layer, batch, tile, *more)

    monkeypatch.setattr(batch_layer, "add_heads", watched)
    for seed in range(6):
        assert_same(*both_ways(gated_model("bert", 8, seed=seed), tiny_batch(7, 12, seed=seed)))
    assert any(began)


def test_blocks_of_several_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "START", 0)
    monkeypatch.setattr(sliced_layer, "CHUNK", 4)
    monkeypatch.setattr(sliced_layer, "NARROW", 2)
    for seed in range(6):
        model = gated_model("bert", 8, seed=seed)
        assert_same(*both_ways(model, tiny_batch(1, seed=seed)))
        assert model.skipping.layers[0].chunks_in_block == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_off_is_not_computed(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of NaN do no harm where no row keeps them."""
    monkeypatch.setattr(planning, "START", 0)
    monkeypatch.setattr(sliced_layer, "CHUNK", 8)
    model = gated_model(family, block=8)
    with torch.no_grad():
        for layer in model.gates.layers:
            layer.heads.predictor[3].bias[1] = -1e6
            layer.neurons.predictor[3].bias[2] = -1e6
        for index in range(model.backbone.depth):
            parts = model.backbone.parts(index)
            parts.value.weight[4:8] = torch.nan
            parts.neurons.weight[16:] = torch.nan
    for rows in (1, 5):
        masked, skipped = both_ways(model, tiny_batch(rows))
        assert masked.logits.isnan().any()
        assert not skipped.logits.isnan().any()


def test_rows_keep_to_themselves() -> None:
    """A row's answer does not depend on its company, nor on what the others keep."""
    model = gated_model("bert", block=2)
    batch = tiny_batch(6)
    batch["attention_mask"][:] = 1
    model.skipping = Skipping(model)
    with torch.no_grad():
        together = model(**batch).logits
        alone = [model(**{name: tensor[row : row + 1] for name, tensor in batch.items()}).logits for row in range(6)]
    torch.testing.assert_close(torch.cat(alone), together, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_shared(family: str) -> None:
    """Skipping holds no weights of its own: it follows the model when that is trained, cast or saved on."""
    model = gated_model(family)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    masked, _ = both_ways(model, tiny_batch())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.backbone.parameters():
            parameter.mul_(1.1)
    skipping = model.skipping
    changed, _ = both_ways(model, tiny_batch())
    model.skipping = skipping
    with torch.no_grad():
        assert_same(changed, model(**tiny_batch(), output_hidden_states=True))
    assert not torch.allclose(changed.logits, masked.logits)
    model.double()
    with torch.no_grad():
        assert model(**tiny_batch()).logits.dtype == torch.float64


def test_albert_layers_are_laid_out_once() -> None:
    model = gated_model("albert")
    assert len({id(layer) for layer in Skipping(model).layers}) == 1


def test_training_is_masked() -> None:
    """Skipping has no gradients, so it stays out of training."""
    model = gated_model("bert").train()
    model.skipping = Skipping(model)
    model(**tiny_batch(labels=3)).loss.backward()
    assert model.gates.layers[0].heads.predictor[0].weight.grad is not None


def test_survives_saving_and_copying(tmp_path: Any) -> None:
    model = gated_model("bert")
    model.skipping = Skipping(model)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path).eval()
    copied = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        expected = model(**tiny_batch()).logits
        torch.testing.assert_close(again(**tiny_batch()).logits, expected)
        torch.testing.assert_close(copied(**tiny_batch()).logits, expected)


def test_no_gates() -> None:
    with pytest.raises(OfframpError, match="no gates"):
        Skipping(tiny_model())


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 3))
def test_runs(kept: list[bool], gap: int) -> None:
    found = runs(kept, gap)
    covered = {unit for first, last in found for unit in range(first, last)}
    assert covered >= {unit for unit, keep in enumerate(kept) if keep}
    assert all(kept[first] and kept[last - 1] for first, last in found)
    assert all(after[0] - before[1] > gap for before, after in itertools.pairwise(found))


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**16), st.sampled_from([1, 10_000, 10_000_000]))
def test_every_kept_unit_is_in_one_tile(rows: int, units: int, seed: int, cost: int) -> None:
    kept = np.random.default_rng(seed).random((rows, units)) < 0.5
    times = np.zeros_like(kept, dtype=int)
    for tile in tiles_of(kept, cost, tokens=3):
        assert tile.of(kept).any(1)[[0, -1]].all()
        times[tile.first_row : tile.last_row, tile.first : tile.last] += 1
    assert (times[kept] == 1).all()
    assert (times <= 1).all()


@pytest.mark.parametrize(
    ("neurons", "block", "width"),
    [(3072, 64, 32), (3072, 32, 32), (3072, 16, 32), (3072, 1, 32), (1920, 1, 32), (480, 48, 24), (2011, 1, 2011)],
)
def test_chunks_and_blocks_fit(neurons: int, block: int, width: int) -> None:
    assert chunk_width(neurons, block) == width
