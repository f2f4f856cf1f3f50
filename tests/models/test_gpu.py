"""The same answers on a GPU."""

from __future__ import annotations

import pytest
import torch

from offramp.recipes import Recipe
from offramp.training import train_on_batches
from tests.policies.matrix import MATRIX as POLICIES
from tests.policies.matrix import SAMPLES, Row
from tests.recipes.matrix import MATRIX as RECIPES
from tests.tiny import FAMILIES, tiny_batch, tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row", POLICIES.values(), ids=POLICIES.keys())
def test_answers(row: Row, family: str) -> None:
    model = tiny_model(family, layers=5, num_labels=3 if row.task == "classification" else 1)
    batch = tiny_batch(SAMPLES)
    expected = model.answer(row.policy, **batch)
    found = model.cuda().answer(row.policy, **{name: tensor.cuda() for name, tensor in batch.items()})
    assert found.exit_layer.tolist() == expected.exit_layer.tolist()
    torch.testing.assert_close(found.logits.cpu(), expected.logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_recipes(recipe: Recipe, family: str) -> None:
    model = tiny_model(family).cuda()
    batch = {name: tensor.cuda() for name, tensor in tiny_batch(labels=3).items()}
    steps = train_on_batches(model, recipe, [batch])
    assert steps[-1].loss < steps[0].loss or steps[-1].phase != steps[0].phase
