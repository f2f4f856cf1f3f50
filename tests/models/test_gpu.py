"""The same answers on a GPU."""

from __future__ import annotations

import pytest
import torch

from offramp.models import GateSettings
from offramp.models.skipping import Skipping
from offramp.recipes import Recipe
from offramp.training import train_on_batches
from tests.policies.matrix import MATRIX as POLICIES
from tests.policies.matrix import SAMPLES, Row
from tests.recipes.matrix import MATRIX as RECIPES
from tests.tiny import FAMILIES, tiny_batch, tiny_gated_model, tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row", POLICIES.values(), ids=POLICIES.keys())
def test_answers(row: Row, family: str) -> None:
    span = row.task == "span"
    model = tiny_model(family, layers=5, num_labels=1 if row.task == "regression" else 3, span=span)
    batch = tiny_batch(SAMPLES)
    expected = model.answer(row.policy, **batch)
    found = model.cuda().answer(row.policy, **{name: tensor.cuda() for name, tensor in batch.items()})
    assert found.exit_layer.tolist() == expected.exit_layer.tolist()
    torch.testing.assert_close(found.logits.cpu(), expected.logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", [1, 8])
def test_gates(block: int, family: str) -> None:
    """Masked and skipped, here and there."""
    model, batch = tiny_gated_model(family, GateSettings(0.4, block=block)), tiny_batch(SAMPLES)
    expected = model.run(**batch)
    model.cuda()
    there = {name: tensor.cuda() for name, tensor in batch.items()}
    for skipping in (None, Skipping(model)):
        model.skipping = skipping
        found = model.run(**there)
        for one, other in zip(found.gates, expected.gates, strict=True):
            assert torch.equal(one.heads.cpu(), other.heads)
            assert torch.equal(one.neurons.cpu(), other.neurons)
        torch.testing.assert_close(found.logits[-1].cpu(), expected.logits[-1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_recipes(recipe: Recipe, family: str) -> None:
    model = tiny_model(family).cuda()
    batch = {name: tensor.cuda() for name, tensor in tiny_batch(labels=3).items()}
    steps = train_on_batches(model, recipe, [batch])
    assert steps[-1].loss < steps[0].loss or steps[-1].phase != steps[0].phase
