"""RomeBERT: self-distillation, gradient regularisation in both directions, training runs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offramp.recipes import Forward, Gradients, RomeBERT
from offramp.recipes.base import last_exit_loss
from offramp.recipes.gradients import Conflict, ProjectConflicts, conflict
from offramp.training import PhaseGradients, train_on_batches
from tests.golden.cases import (
    AFTER_TRAINING,
    LOSS,
    NO_CLIPPING,
    GoldenCase,
    assert_gradients,
    assert_trained,
    exit_logits,
    gradients_of,
    only_phase,
)
from tests.golden.left_out import array_left_out
from tests.golden.legacy_adamw import LegacyAdamW

CHECKED = (
    r"inputs\.npz:(input_ids|attention_mask|token_type_ids|labels(_active|_inactive)?)$",
    r"outputs\.npz:(highway_logits|main_logits|highway_entropy|thresholds|exit_layer|exit_logits)$",
    r"losses\.npz:[^/]*/(loss|grad_norms|grad/.*)$",
    r"gr\.npz:(in)?active/(last|sd)_first/(losses|inner|logged|grad_norms|grad/.*)$",
    r"train_run\.npz:(sd|gr_sd_first|gr_last_first)/(mean_loss|angles|logits_after|param_after/.*)$",
)

FIRST = {"last_first": "last", "sd_first": "distillation"}


def loss_pieces(recipe: RomeBERT, forward: Forward) -> list[float]:
    """[total, L_f, D, M] as the original returns them."""
    last, soft, hard = last_exit_loss(forward), recipe.soft(forward), recipe.hard(forward)
    return [float(value.detach()) for value in (last + soft + hard, last, soft, hard)]


@pytest.mark.golden("romebert", needs=r"losses\.npz:")
def test_self_distillation(case: GoldenCase) -> None:
    stored, checked = case.arrays("losses.npz"), 0
    for name, variant in case.settings["sd_variants"].items():
        if array_left_out(case, f"losses.npz:{name}/loss"):
            continue
        model = case.load(double=True)
        recipe = RomeBERT(
            gamma=variant["gamma"],
            temperature=variant["temper"],
            regularise=False,
            equilibrium=variant["gradient_equilibrium"],
            schedule=NO_CLIPPING,
        )
        phase, batch = only_phase(recipe, model), case.batch(labels="labels")
        pieces = loss_pieces(recipe, PhaseGradients(model, phase).forward(batch))
        np.testing.assert_allclose(pieces, stored[f"{name}/loss"], **LOSS, err_msg=name)
        total, _, gradients = gradients_of(model, phase, batch)
        np.testing.assert_allclose(total, pieces[0], **LOSS)
        assert_gradients(case, model, gradients, stored, name)
        checked += 1
    assert checked


@pytest.fixture
def conflicts(monkeypatch: pytest.MonkeyPatch) -> list[Conflict]:
    """How the two gradients lie to each other at each step, before the edit."""
    seen: list[Conflict] = []
    edit = ProjectConflicts.__call__

    def watched(self: ProjectConflicts, first: Gradients, second: Gradients) -> Gradients:
        seen.append(conflict(first, second, self.names))
        return edit(self, first, second)

    monkeypatch.setattr(ProjectConflicts, "__call__", watched)
    return seen


def angle_as_logged(found: Conflict) -> float:
    """Degrees between them, with the original's pi."""
    return math.acos(found.inner / math.sqrt(found.first * found.second)) * 180 / 3.1415


@pytest.mark.golden("romebert", needs=r"gr\.npz:")
@pytest.mark.parametrize("direction", FIRST)
@pytest.mark.parametrize("projection", ["active", "inactive"])
def test_gradient_regularisation(case: GoldenCase, projection: str, direction: str, conflicts: list[Conflict]) -> None:
    stored, key = case.arrays("gr.npz"), f"{projection}/{direction}"
    settings = case.settings
    recipe = RomeBERT(settings["gamma"], settings["T"], first=FIRST[direction], schedule=NO_CLIPPING)
    model = case.load(double=True)
    phase, batch = only_phase(recipe, model), case.batch(labels=f"labels_{projection}")
    if "shared_set" in settings:
        assert phase.edit_gradients.names == {case.our_names(model)[name] for name in settings["shared_set"]}

    pieces = loss_pieces(recipe, PhaseGradients(model, phase).forward(batch))
    np.testing.assert_allclose(pieces, stored[f"{key}/losses"], **LOSS)

    _, _, gradients = gradients_of(model, phase, batch)
    assert_gradients(case, model, gradients, stored, key)
    (found,) = conflicts
    inner = [found.first, found.second, found.inner, found.coefficient, min(found.coefficient, 0.0)]
    np.testing.assert_allclose(inner, stored[f"{key}/inner"], rtol=1e-6, atol=1e-12)
    a, b = math.sqrt(found.first), math.sqrt(found.second)
    np.testing.assert_allclose([angle_as_logged(found), a, b, a / b], stored[f"{key}/logged"], rtol=1e-6)
    assert (found.inner < 0) == (projection == "active")
    if "cosine" in settings:
        assert found.inner / (a * b) == pytest.approx(settings["cosine"][projection], rel=1e-6)


@pytest.mark.golden("romebert", needs=r"train_run\.npz:")
@pytest.mark.parametrize("run", ["sd", "gr_sd_first", "gr_last_first"])
def test_training_run(case: GoldenCase, run: str, conflicts: list[Conflict]) -> None:
    stored, settings = case.arrays("train_run.npz"), case.settings
    recipe = RomeBERT(
        settings["gamma"],
        settings["T"],
        regularise=run != "sd",
        first=FIRST.get(run.removeprefix("gr_"), "distillation"),
        schedule=case.schedule(),
    )
    model = case.load(double=True)
    batches = case.batches(settings["train_run"]["labels"])
    steps = train_on_batches(model, recipe, batches, make_optimiser=LegacyAdamW)
    np.testing.assert_allclose(np.mean([step.loss for step in steps]), stored[f"{run}/mean_loss"], **AFTER_TRAINING)
    np.testing.assert_allclose(exit_logits(model, case.batch()), stored[f"{run}/logits_after"], **AFTER_TRAINING)
    np.testing.assert_allclose(
        [angle_as_logged(found) for found in conflicts], stored.get(f"{run}/angles", []), rtol=1e-6
    )
    assert_trained(case, model, stored, f"{run}/")
