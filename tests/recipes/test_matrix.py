"""What must hold of every recipe, on every backbone and every head."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from offramp.models import MultiExitModel
from offramp.recipes import REGISTRY, Phase, Recipe, Schedule
from offramp.training import PhaseGradients, train_on_batches
from tests.recipes.matrix import MATRIX, ON_EVERYTHING
from tests.tiny import FAMILIES, rows_of, span_batch, tiny_batch, tiny_model, without_dropout

HEADS: dict[str, dict[str, Any]] = {
    "classification": {},
    "regression": {"num_labels": 1},
    "span": {"span": True, "poolers": 0},
    "one head for all": {"poolers": 1, "classifiers": 1},
    "a head for each half": {"poolers": 2, "classifiers": 2},
    "exits on some layers": {"exit_layers": [2, 4]},
}

every_recipe = pytest.mark.parametrize("recipe", MATRIX.values(), ids=MATRIX.keys())


def make(family: str, head: str) -> tuple[MultiExitModel, list[dict[str, Tensor]]]:
    """A model without dropout, and two batches to learn."""
    model = without_dropout(tiny_model(family, **HEADS[head]))
    batch = span_batch(8) if head == "span" else tiny_batch(8, labels=1 if head == "regression" else 3)
    return model, [rows_of(batch, torch.arange(4)), rows_of(batch, torch.arange(4, 8))]


def is_variant(name: str) -> bool:
    """Whether a row with gates is one of many."""
    return name.startswith("ebert") and name not in ON_EVERYTHING


CASES = [
    pytest.param(recipe, family, head, id=f"{name}-{family}-{head}")
    for name, recipe in MATRIX.items()
    for family in FAMILIES
    for head in HEADS
    if not is_variant(name) or (family, head) in (("bert", "classification"), ("albert", "span"))
]


@pytest.mark.parametrize(("recipe", "family", "head"), CASES)
def test_learns(recipe: Recipe, family: str, head: str) -> None:
    """Each phase brings its own loss down, changes all it trains, and nothing else."""
    model, batches = make(family, head)
    recipe.prepare(model)
    for phase in recipe.phases(model):
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        at_first = mean_loss(model, phase, batches)
        train_on_batches(model, OnePhase(phase), batches)
        changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert changed <= phase.trains
        assert phase.trains - changed <= never_reached(model)
        assert mean_loss(model, phase, batches) < at_first


@torch.no_grad()
def mean_loss(model: MultiExitModel, phase: Phase, batches: list[dict[str, Tensor]]) -> float:
    """Of a phase as it trains, over some draws of the gates' noise where there is any; the model stays as it is."""
    model, draws = copy.deepcopy(model), 16 if model.gates is not None and phase.gates == "sample" else 1
    torch.manual_seed(0)
    with PhaseGradients(model, phase) as gradients:
        model.train()
        return float(sum(sum(gradients.losses(batch)) for _ in range(draws) for batch in batches)) / draws


def never_reached(model: MultiExitModel) -> set[str]:
    """Weights without a gradient whatever the loss: softmax forgets a bias that is added to every key, and a norm
    over the batch one that is added to every row.
    """
    return {name for name, _ in model.named_parameters() if name.endswith(("key.bias", "predictor.0.bias"))}


class OnePhase:
    """A recipe of one given phase."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase

    def prepare(self, model: MultiExitModel) -> None:
        pass

    def phases(self, model: MultiExitModel) -> list[Phase]:
        return [self.phase]


@pytest.mark.parametrize("family", ["bert", "albert"])
@every_recipe
def test_accumulating_is_one_large_batch(recipe: Recipe, family: str) -> None:
    """Also where gradients are edited: the edit sees the sums, not the last micro-batch.

    Not where gates learn: they sample, and their norms and their penalty look at one micro-batch.
    """
    model, halves = make(family, "classification")
    model.double()
    whole = tiny_batch(8, labels=3)
    recipe.prepare(model)
    for phase in (phase for phase in recipe.phases(model) if model.gates is None or phase.gates != "sample"):
        found = []
        for micro_batches in ([whole], halves):
            with PhaseGradients(model, replace(phase, schedule=Schedule(clip=0.1))) as gradients:
                for batch in micro_batches:
                    gradients.add(batch, weight=1 / len(micro_batches))
                gradients.finish()
                found.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        assert found[0].keys() == found[1].keys()
        assert found[0].keys() <= phase.trains
        for name, gradient in found[0].items():
            torch.testing.assert_close(gradient, found[1][name])


@every_recipe
def test_training_twice_gives_the_same_bits_and_so_does_saving(recipe: Recipe, tmp_path: Path) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        model, batches = make("bert", "classification")
        train_on_batches(model, recipe, batches, accumulate=2)
        models.append(model)
    models[0].save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for name, tensor in models[0].state_dict().items():
        assert torch.equal(tensor, models[1].state_dict()[name])
        assert torch.equal(tensor, again.state_dict()[name])


def test_the_matrix_has_every_recipe() -> None:
    assert {recipe.name for recipe in MATRIX.values()} == set(REGISTRY)
