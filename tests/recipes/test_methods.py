"""What single methods promise, beyond the numbers of the originals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from offramp import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes import (
    ELBERT,
    DeeBERT,
    ElasticBERT,
    Forward,
    Offramp,
    Phase,
    Plain,
    RomeBERT,
    Schedule,
    exit_weights,
)
from offramp.recipes.gradients import ProjectConflicts, conflict
from offramp.training import PhaseGradients, train_on_batches
from tests.tiny import FAMILIES, tiny_batch, tiny_model, without_dropout

UNCLIPPED = Schedule(clip=float("inf"))
BATCH = tiny_batch(labels=3)


def gradients_of(model: MultiExitModel, phase: Phase) -> dict[str, Tensor]:
    with PhaseGradients(model, phase) as gradients:
        gradients.add(BATCH)
        gradients.finish()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_deebert_computes_no_gradient_in_the_frozen_backbone() -> None:
    model = tiny_model()
    phase = DeeBERT().phases(model)[1]
    with PhaseGradients(model, phase) as gradients:
        states = model.run(BATCH["input_ids"], BATCH["attention_mask"])[1]
        assert not any(state.requires_grad for state in states)
        gradients.add(BATCH)
        assert {name for name, p in model.named_parameters() if p.grad is not None} == phase.trains
    assert all(name.startswith("exits.") for name in phase.trains)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_deebert_does_not_touch_the_last_exit_in_its_second_stage() -> None:
    model = tiny_model()
    trained = DeeBERT().phases(model)[1].trains
    assert "exits.classifiers.2.weight" in trained
    assert not trained & {"exits.classifiers.3.weight", "exits.poolers.3.bias"}
    shared = tiny_model(poolers=1)  # the pooler is the last exit's too
    assert DeeBERT().phases(shared)[1].trains == {
        f"exits.classifiers.{i}.{w}" for i in range(3) for w in ("weight", "bias")
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_equilibrium_is_the_mean_over_the_exits_above(family: str) -> None:
    model = tiny_model(family).double()
    (joint,) = ElasticBERT(schedule=UNCLIPPED).phases(model)
    (plain,) = ElasticBERT(equilibrium=False, schedule=UNCLIPPED).phases(model)
    balanced, summed = gradients_of(model, joint), gradients_of(model, plain)
    for name in balanced:
        if name.startswith("exits."):
            torch.testing.assert_close(balanced[name], summed[name])
        elif "embeddings" in name:
            torch.testing.assert_close(balanced[name], summed[name] / 4)
        elif ".layer." in name:  # ALBERT's one layer is in every place at once
            layer = int(name.split(".layer.")[1].split(".")[0])
            torch.testing.assert_close(balanced[name], summed[name] / (4 - layer))


@pytest.mark.parametrize("layers", [2, 5])
def test_projection_leaves_out_the_last_layer_at_any_depth(layers: int) -> None:
    (phase,) = RomeBERT().phases(tiny_model(layers=layers))
    names = phase.edit_gradients.names
    assert len(names) == 6 * (layers - 1)
    assert not [name for name in names if f".layer.{layers - 1}." in name]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_projection(sign: float) -> None:
    torch.manual_seed(3)
    a = {"shared": torch.randn(5, 4), "only first": torch.randn(3), "outside": torch.randn(2)}
    b = {
        "shared": sign * a["shared"] + 0.3 * torch.randn(5, 4),
        "outside": -a["outside"],
        "only second": torch.randn(3),
    }
    merged = ProjectConflicts(frozenset({"shared"}))(a, b)
    added = merged["shared"] - a["shared"]
    if sign > 0:
        torch.testing.assert_close(added, b["shared"])
    else:
        assert (added * a["shared"]).sum().item() == pytest.approx(0.0, abs=1e-4)
        assert conflict(a, b, frozenset({"shared"})).inner < 0
    torch.testing.assert_close(merged["outside"], torch.zeros(2))
    assert torch.equal(merged["only first"], a["only first"])
    assert torch.equal(merged["only second"], b["only second"])


@pytest.mark.parametrize("first", ["last", "distillation"])
def test_projection_with_exits_on_some_layers(first: str) -> None:
    """Layers above the highest early exit hear only the last loss, and are projected all the same."""
    model = tiny_model(exit_layers=[2, 4]).double()
    (phase,) = RomeBERT(first=first, schedule=UNCLIPPED).phases(model)
    names = phase.edit_gradients.names
    with PhaseGradients(model, phase) as gradients:
        gradients.add(BATCH)
        a, b = (dict(each) for each in gradients.by_loss)
        b = {name: gradient if name not in names else gradient - 2 * a.get(name, 0) for name, gradient in b.items()}
        merged = phase.edit_gradients(a, b)
    assert conflict(a, b, names).inner < 0
    added = {name: merged[name] - a[name] for name in names & a.keys()}
    assert sum((added[name] * a[name]).sum().item() for name in added) == pytest.approx(0.0, abs=1e-9)


def test_nothing_to_project_against() -> None:
    zero, b = {"w": torch.zeros(3)}, {"w": torch.randn(3)}
    assert torch.equal(ProjectConflicts(frozenset({"w"}))(zero, b)["w"], b["w"])


def test_projection_without_waiting_is_the_same() -> None:
    edit = ProjectConflicts(frozenset({"a", "b", "only first"}))
    for sign in (1.0, -1.0, 0.0):
        first = {name: torch.randn(4, 3) for name in ("a", "b", "free", "only first")}
        second = {name: sign * first[name] + 0.1 * torch.randn(4, 3) for name in ("a", "b", "free")}
        second["only second"] = torch.randn(2)
        for left, right in ((first, second), ({"free": first["free"]}, second), ({"a": torch.zeros(4, 3)}, second)):
            merged, wanted = edit.without_waiting(left, right), edit(left, right)
            assert merged.keys() == wanted.keys()
            for name, gradient in merged.items():
                torch.testing.assert_close(gradient, wanted[name])


def test_plain_computes_only_the_last_exit() -> None:
    model = tiny_model()
    (phase,) = Plain().phases(model)
    assert list(phase.exit_numbers(model)) == [3]
    assert not [name for name in phase.trains if name.startswith("exits.") and ".3." not in name]


@pytest.mark.parametrize("make", [lambda: ELBERT("dynamc"), lambda: RomeBERT(first="distil")])
def test_misspelt_words_are_refused(make: Any) -> None:
    with pytest.raises(OfframpError, match="use '"):
        make()


def test_learned_weights_add_up_and_shrink_for_bad_exits() -> None:
    raw = torch.tensor([4.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    weights = exit_weights(raw)
    assert weights.sum().item() == pytest.approx(4.0)
    losses = torch.tensor([2.0, 0.1, 0.7, 0.5], dtype=torch.float64)
    (weights * losses).sum().backward()
    inner = torch.sigmoid(raw.detach())
    torch.testing.assert_close(raw.grad, inner * (1 - inner) * (losses[:3] - losses[3]))


@pytest.mark.parametrize("keep", [False, True])
def test_learned_weights_see_a_fresh_gradient_unless_asked(keep: bool) -> None:
    model, seen = without_dropout(tiny_model()), []
    recipe = ELBERT(keep_gradient=keep, weights_rate=0.0, schedule=Schedule(learning_rate=0.0, epochs=3))
    train_on_batches(model, recipe, [BATCH], on_step=lambda _: seen.append(model.loss_weights.grad.clone()))
    for number, gradient in enumerate(seen, start=1):
        torch.testing.assert_close(gradient, seen[0] * (number if keep else 1))


def test_learned_weights_are_kept_when_training_goes_on() -> None:
    model = tiny_model()
    train_on_batches(model, ELBERT(weights_rate=0.5), [BATCH])
    learned = model.loss_weights.detach().clone()
    assert not torch.equal(learned, torch.full_like(learned, 4.0))
    ELBERT().prepare(model)
    assert torch.equal(model.loss_weights, learned)


@pytest.mark.parametrize("recipe", [DeeBERT(), RomeBERT(), ELBERT(), Offramp()], ids=lambda recipe: recipe.name)
def test_methods_of_many_exits_refuse_one(recipe: DeeBERT | RomeBERT | ELBERT | Offramp) -> None:
    with pytest.raises(OfframpError, match="below the last one: this model has none; use plain"):
        train_on_batches(tiny_model(exit_layers=[4]), recipe, [BATCH])


def test_training_needs_batches_and_labels() -> None:
    with pytest.raises(OfframpError, match="no batches"):
        train_on_batches(tiny_model(), Plain(), [])
    with pytest.raises(OfframpError, match="the batch has no labels"):
        train_on_batches(tiny_model(), Plain(), [tiny_batch()])


class TestOurRecipe:
    def forward(self, teacher: bool) -> Forward:
        draw = torch.Generator().manual_seed(0)
        logits = [torch.randn(5, 3, generator=draw, dtype=torch.double) for _ in range(4)]
        frozen = [torch.randn(5, 3, generator=draw, dtype=torch.double) for _ in range(4)] if teacher else None
        model = tiny_model()
        return Forward(logits, torch.tensor([0, 1, 2, 0, 1]), model.objective, model, teacher=frozen)

    @pytest.mark.parametrize("teacher", [True, False])
    def test_its_formula(self, teacher: bool) -> None:
        recipe, forward = Offramp(alpha=0.3, temperature=1.5), self.forward(teacher)
        soft = [(z / 1.5).softmax(-1) for z in forward.logits]
        frozen = [] if forward.teacher is None else [(forward.teacher[-1] / 1.5).softmax(-1)]
        teachers = {0: [soft[1], soft[3]], 1: [soft[2], soft[3]], 2: [soft[3]], 3: []}
        expected = torch.zeros((), dtype=torch.double)
        for exit, z in enumerate(forward.logits):
            own = frozen + teachers[exit]
            share = 0.3 if own else 0.0
            expected += (1 - share) * torch.nn.functional.cross_entropy(z, forward.target)
            for t in own:
                divergence = (t * (t.log() - soft[exit].log())).sum(-1).mean()
                expected += share / len(own) * 1.5**2 * divergence
        torch.testing.assert_close(recipe.loss(forward), expected)

    def test_without_teachers_it_is_elasticberts(self) -> None:
        model = tiny_model()
        (ours,) = Offramp(alpha=0.0, fine_tune=False, schedule=UNCLIPPED).phases(model)
        (theirs,) = ElasticBERT(schedule=UNCLIPPED).phases(model)
        without_dropout(model)
        one, other = gradients_of(model, ours), gradients_of(model, theirs)
        assert one.keys() == other.keys()
        for name in one:
            torch.testing.assert_close(one[name], other[name])

    @pytest.mark.parametrize(
        ("settings", "message"), [({"alpha": 1.5}, "a share"), ({"temperature": 0.0}, "more than")]
    )
    def test_numbers_that_cannot_be(self, settings: dict[str, float], message: str) -> None:
        with pytest.raises(OfframpError, match=message):
            Offramp(**settings)
