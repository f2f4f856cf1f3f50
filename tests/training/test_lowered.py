"""Weights that are cast all at once: every bit of what autocast gives by itself."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offramp.recipes import Offramp, Recipe
from offramp.training.lowered import LoweredWeights, linear_maps_used_once, lower_for_good
from offramp.training.phase_gradients import PhaseGradients
from tests.recipes.matrix import MATRIX
from tests.tiny import tiny_batch, tiny_model

CPU = torch.device("cpu")


def autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)


def found(gradients: PhaseGradients, lowered: bool) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    torch.manual_seed(1)  # dropout, and the noise of gates
    weights = LoweredWeights(gradients.model).in_place(CPU) if lowered else nullcontext()
    with autocast(), weights:
        losses = gradients.losses(tiny_batch(6, labels=3))
    return losses, gradients.gradients_of(losses)


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("recipe", MATRIX.values(), ids=MATRIX.keys())
def test_losses_and_gradients_are_the_same_to_the_bit(recipe: Recipe, family: str) -> None:
    model = tiny_model(family)
    recipe.prepare(model)
    for phase in recipe.phases(model):
        with PhaseGradients(model, phase) as gradients:
            model.train()
            (losses, sums), (wanted, wanted_sums) = found(gradients, True), found(gradients, False)
            assert [loss.item() for loss in losses] == [loss.item() for loss in wanted]
            for ours, theirs in zip(sums, wanted_sums, strict=True):
                assert ours.keys() == theirs.keys()
                assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_they_are_real_again_afterwards_whatever_happens() -> None:
    model = tiny_model()
    before = dict(model.named_parameters())
    with autocast(), LoweredWeights(model).in_place(CPU):
        assert {p.dtype for linear in linear_maps_used_once(model) for p in linear.parameters()} == {torch.bfloat16}
    with suppress(KeyError), autocast(), LoweredWeights(model).in_place(CPU):
        raise KeyError
    after = dict(model.named_parameters())
    assert list(before) == list(after)
    assert all(after[name] is parameter for name, parameter in before.items())


def test_without_autocast_nothing_happens() -> None:
    model = tiny_model()
    with LoweredWeights(model).in_place(CPU):
        assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())


def maps_in(*parts: nn.Module) -> int:
    return sum(isinstance(module, nn.Linear) for part in parts for module in part.modules())


def test_maps_that_a_pass_goes_through_often_are_left_alone() -> None:
    model, shared = tiny_model(), tiny_model("albert")
    layers = [model.backbone.layer_module(index) for index in range(model.backbone.depth)]
    assert len(linear_maps_used_once(model)) == maps_in(*layers, model.exits)
    assert len(linear_maps_used_once(shared)) == maps_in(shared.exits)


def test_a_teacher_that_is_lowered_says_the_same() -> None:
    model = tiny_model()
    _, joint = Offramp().phases(model)
    with PhaseGradients(model, joint) as gradients:
        assert gradients.teacher is not None
        wanted, _ = found(gradients, False)
        lower_for_good(gradients.teacher, torch.bfloat16)
        losses, _ = found(gradients, False)
        assert [loss.item() for loss in losses] == [loss.item() for loss in wanted]
