"""EBERT's recipe: the penalty by hand, its phases on other recipes, and targets that cannot be met."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from offramp.errors import OfframpError
from offramp.models import GateSettings, Kept
from offramp.models.flops import EbertLayer
from offramp.recipes import (
    EBERT,
    ELBERT,
    DeeBERT,
    ElasticBERT,
    Forward,
    Frozen,
    Offramp,
    Plain,
    Recipe,
    RomeBERT,
    Schedule,
)
from offramp.training import PhaseGradients, train_on_batches
from offramp.training.loop import parameter_groups
from offramp.training.published import published_recipe, recipe_from_json, recipe_to_json, with_settings
from tests.tiny import tiny_batch, tiny_model, without_dropout

HEADS, NEURONS, TOKENS = 4, 24, 12


def forward(model: Any, kept: list[tuple[list[int], list[int]]]) -> Forward:
    """A pass in which each layer kept so many heads and neurons for each row."""
    gates = [
        Kept(
            torch.stack([(torch.arange(HEADS) < n).float() for n in heads]),
            torch.stack([(torch.arange(NEURONS) < n).float() for n in neurons]),
        )
        for heads, neurons in kept
    ]
    nothing = torch.zeros(2, 3)
    return Forward([nothing], nothing, model.objective, model, tokens=TOKENS, gates=gates)


def test_penalty_by_hand() -> None:
    model, recipe = tiny_model(layers=2), EBERT(target=0.6, penalty=2.0)
    gap, of_heads, of_neurons, sparsity = recipe.penalty_parts(forward(model, [([1, 3], [6, 18]), ([4, 4], [0, 0])]))
    head = 8 * TOKENS * 4 * 16 + 4 * TOKENS**2 * 4
    neurons = 4 * TOKENS * 16 * NEURONS
    predictors = 2 * 64 * (16 + HEADS) + 2 * 64 * (16 + NEURONS)
    flops = 2 * predictors + (2 * head + 0.5 * neurons) + (4 * head + 0)
    expected = 1 - flops / (2 * (HEADS * head + neurons))
    assert float(sparsity) == pytest.approx(expected)
    assert float(gap) == pytest.approx((expected - 0.4) ** 2)
    assert float(of_heads) == pytest.approx(((0.4 - 0.5) ** 2 + (0.4 - 0.0) ** 2) / 2)
    assert float(of_neurons) == pytest.approx(((0.4 - 0.5) ** 2 + (0.4 - 1.0) ** 2) / 2)
    whole = recipe.flops_penalty(forward(model, [([1, 3], [6, 18]), ([4, 4], [0, 0])]))
    assert float(whole) == pytest.approx(2 * float(gap + 5 * of_heads + 5 * of_neurons))


def test_blocks_make_predictors_cheaper() -> None:
    one, blocks = EbertLayer(384, 12, 1536), EbertLayer(384, 12, 1536, block=64)
    assert one.ffn_predictor() - blocks.ffn_predictor() == 2 * 64 * (1536 - 24)


def phases(base: Recipe, **settings: Any) -> list[tuple[str, str, bool]]:
    """(name, how gates decide, whether they learn) of every phase."""
    model, recipe = tiny_model(), EBERT(base=base, **settings)
    recipe.prepare(model)
    return [(phase.name, phase.gates, phase.trains_gates) for phase in recipe.phases(model)]


def test_phases() -> None:
    tuned, gated = ("fine-tune", "open", False), ("gated-fine-tune", "sample", True)
    assert phases(Plain()) == [tuned, gated]
    assert phases(Plain(), fine_tune=False) == [gated]
    assert phases(Plain(), retrain=1) == [tuned, gated, ("retrain-fine-tune", "decide", False)]
    assert phases(DeeBERT()) == [tuned, gated, ("gated-exits", "decide", False)]
    for joint, name in ((ElasticBERT(), "joint"), (RomeBERT(), "self-distillation"), (ELBERT(), "joint")):
        assert phases(joint) == [(name, "open", False), (f"gated-{name}", "sample", True)]


def test_gates_do_not_go_with_a_recipe_that_leaves_the_backbone_alone() -> None:
    with pytest.raises(OfframpError, match=r"ebert\+frozen: gates learn together with the backbone, and frozen leaves"):
        phases(Frozen())


@pytest.mark.parametrize("distil", [0.0, 0.5])
def test_a_base_keeps_its_teacher(distil: float) -> None:
    """Which answers as the model is to answer: with all of every layer, or as its gates decide."""
    model, recipe = tiny_model(), EBERT(base=Offramp(), distil=distil, retrain=1)
    recipe.prepare(model)
    teachers = {}
    for phase in recipe.phases(model):
        with PhaseGradients(model, phase) as gradients:
            teachers[phase.name] = gradients.teacher and gradients.teacher.gates.mode
    assert teachers == {
        "fine-tune": None,
        "joint": "open",
        "gated-fine-tune": "open" if distil else None,
        "gated-joint": "open",
        "retrain-fine-tune": None,
        "retrain-joint": "decide",
    }


def test_a_teacher_of_the_base_is_heard_by_the_base_alone() -> None:
    model, batch = without_dropout(tiny_model()), tiny_batch(8, labels=3)
    recipe = EBERT(base=Offramp(), penalty=0.0)
    recipe.prepare(model)
    phase = next(phase for phase in recipe.phases(model) if phase.name == "gated-joint")
    with PhaseGradients(model, phase) as gradients:
        seen = gradients.forward(batch)
    assert torch.equal(phase.losses[0](seen), recipe.base.loss(seen))  # type: ignore[attr-defined]
    assert not torch.equal(phase.losses[0](seen), recipe.base.loss(replace(seen, teacher=None)))  # type: ignore[attr-defined]


def test_predictors_have_a_rate_of_their_own_and_are_clipped_with_the_rest() -> None:
    model, recipe = without_dropout(tiny_model()), EBERT(base=ELBERT(), predictor_rate=0.5)
    recipe.prepare(model)
    phase = recipe.phases(model)[1]
    with PhaseGradients(model, phase) as gradients:
        groups = parameter_groups(gradients.trained, phase)
        gradients.add(tiny_batch(8, labels=3))
        norm = gradients.finish()
        held = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    rates = [group["lr"] for group in groups]
    assert rates[2:] == [ELBERT().weights_rate, 0.5]
    clipped = torch.stack([g.norm() for name, g in held.items() if name != "loss_weights"]).norm()
    assert norm > 1
    assert float(clipped) == pytest.approx(1.0, rel=1e-3)


def test_the_teacher_is_the_fine_tuned_model_and_stays_so() -> None:
    model, batch = without_dropout(tiny_model()), tiny_batch(8, labels=3)
    with torch.no_grad():
        expected = model(**batch).logits
    recipe = EBERT(distil=1.0, penalty=0.0)
    recipe.prepare(model)
    phase = recipe.phases(model)[1]
    with PhaseGradients(model, phase) as gradients:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.5)
        model.train()
        seen = gradients.forward(batch)
        loss = phase.losses[0](seen)
    torch.testing.assert_close(seen.teacher[-1], expected)
    away = seen.objective.distil(seen.logits[-1], expected, recipe.distil_temperature)
    assert float(loss.detach()) == pytest.approx(recipe.distil_temperature**2 * float(away.detach()), rel=1e-5)


@pytest.mark.parametrize("base", [ElasticBERT(), RomeBERT()], ids=lambda base: base.name)
def test_the_teacher_teaches_every_exit_and_the_labels_keep_the_rest(base: Recipe) -> None:
    found = []
    for distil in (0.0, 0.5, 1.0):
        torch.manual_seed(0)
        model = without_dropout(tiny_model())
        recipe = EBERT(distil=distil, penalty=0.0, base=base)
        recipe.prepare(model)
        with PhaseGradients(model, recipe.phases(model)[1]) as gradients:
            gradients.model.gates.set_mode("decide")
            losses = gradients.losses(tiny_batch(8, labels=3))
            gradients.add_gradients(losses)
            gradients.edit()
            heads = [model.exits.classifiers[str(exit)].weight.grad for exit in range(4)]
            found.append((float(sum(losses).detach()), heads))
    (labels, _), (both, _), (teacher, heads) = found
    assert both == pytest.approx((labels + teacher) / 2, rel=1e-4)
    assert all(float(gradient.abs().sum()) > 0 for gradient in heads)


def test_other_recipes_leave_gates_alone() -> None:
    model, batch = tiny_model(), tiny_batch(8, labels=3)
    model.add_gates(GateSettings(sparsity=0.4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("gates.")}
    for recipe in (Plain(), DeeBERT(), ElasticBERT(), RomeBERT(), ELBERT()):
        train_on_batches(model, replace(recipe, schedule=Schedule(epochs=1, learning_rate=0.01)), [batch])
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("target", [0.0, -0.5, 1.5])
def test_no_such_share(target: float) -> None:
    with pytest.raises(OfframpError, match="a share of all"):
        EBERT(target=target)


def test_a_target_below_the_predictors_own_cost() -> None:
    model = tiny_model()
    with pytest.raises(OfframpError, match=r"cannot be met: the gates' own predictors cost 0\.\d+ of a layer at 40"):
        EBERT(target=0.01).prepare(model)
    assert model.gates is None


def test_gates_that_are_there_are_kept_and_those_of_other_blocks_refused() -> None:
    model = tiny_model()
    model.add_gates(GateSettings(sparsity=0.1, heads="topk", width=8, first_input="padded_mean"))
    before = model.gates
    EBERT(target=0.5).prepare(model)
    assert (model.gates.settings.width, model.gates.settings.first_input) == (8, "padded_mean")
    assert model.gates is before
    assert (model.gates.layer(0).heads.mode, model.gates.layer(0).heads.sparsity) == ("gumbel", 0.5)
    assert model.config.gate_settings.sparsity == 0.5
    with pytest.raises(OfframpError, match="blocks of 1 neurons, not 8"):
        EBERT(block=8).prepare(model)


def test_names_settings_and_json() -> None:
    recipe = published_recipe("ebert+romebert", "glue/mnli", "bert")
    assert isinstance(recipe, EBERT)
    assert recipe.full_name == "ebert+romebert"
    assert (recipe.base.first, recipe.schedule) == ("last", recipe.base.schedule)  # type: ignore[attr-defined]
    changed = with_settings(recipe, {"epochs": 7}, {"target": "0.5", "gamma": "0.3", "block": "64"})
    assert (changed.target, changed.block, changed.base.gamma, changed.schedule.epochs) == (0.5, 64, 0.3, 7)  # type: ignore[attr-defined]
    assert recipe_from_json(recipe_to_json(changed)) == changed
    assert recipe_to_json(EBERT())["name"] == "ebert"
    assert recipe_to_json(changed)["base"]["schedule"]["epochs"] == 7
    with pytest.raises(OfframpError, match="another version of offramp"):
        recipe_from_json({**recipe_to_json(EBERT()), "colour": "blue"})
    with pytest.raises(OfframpError, match="has no setting 'beta'"):
        with_settings(recipe, {}, {"beta": "1"})
    for wrong in ("deebert+romebert", "ebert+ebert", "ebert+", "ebert+magic"):
        with pytest.raises(OfframpError, match=r"ebert|recipe"):
            published_recipe(wrong, "sst-2", "bert")


def test_published_settings() -> None:
    roberta, squad = published_recipe("ebert", "glue/qnli", "roberta"), published_recipe("ebert", "squad", "bert")
    assert (roberta.target, roberta.predictor_rate, roberta.penalty) == (0.6, 0.01, 2.0)  # type: ignore[attr-defined]
    assert (squad.schedule.epochs, squad.schedule.batch_size) == (2, 12)  # type: ignore[attr-defined]


def test_a_target_of_all_is_no_penalty() -> None:
    model, recipe = tiny_model(), EBERT(target=1.0)
    recipe.prepare(model)
    phase = recipe.phases(model)[1]
    with PhaseGradients(model, phase) as gradients:
        seen = gradients.forward(tiny_batch(8, labels=3))
    loss = phase.losses[0]
    assert torch.equal(loss(seen), loss.task(seen))  # type: ignore[attr-defined]


def test_a_phase_leaves_the_gates_mode_as_it_was_and_its_teacher_does_not_train() -> None:
    model, recipe = tiny_model().train(), EBERT(distil=0.5)
    recipe.prepare(model)
    model.gates.set_mode("decide")
    for phase in recipe.phases(model):
        with PhaseGradients(model, phase) as gradients:
            assert model.gates.mode == phase.gates
            assert gradients.teacher is None or not gradients.teacher.training
        assert model.gates.mode == "decide"


def test_the_length_in_training_decides_what_can_be_met() -> None:
    model = tiny_model()
    model.config.max_text_tokens = 8
    with pytest.raises(OfframpError, match="of a layer at 8 tokens"):
        EBERT(target=0.05).prepare(model)
