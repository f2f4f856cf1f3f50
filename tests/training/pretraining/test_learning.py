"""What a step does: gradient equilibrium, groups, Muon; micro-batches and precision."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import BertTokenizer

from offramp.errors import OfframpError
from offramp.training.pretraining import Corpus, exit_groups
from offramp.training.pretraining.course import Course
from offramp.training.pretraining.groups import group_at
from offramp.training.pretraining.model import PretrainingModel
from offramp.training.pretraining.muon import Muon, orthogonal
from offramp.training.pretraining.rows import Rows
from offramp.training.pretraining.start import starting_model
from offramp.training.pretraining.stepping import Stepper
from tests.training.pretraining.small_corpus import SHAPE, plan, small_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return small_corpus(tmp_path_factory.mktemp("corpus"))


def first_rows(corpus: Corpus, **settings: object) -> Rows:
    return Course(corpus.store.train, corpus.words, plan(**settings)).rows(0)


def test_the_papers_groups() -> None:
    odd, even = exit_groups(12, 2)
    assert [exit + 1 for exit in odd] == [1, 3, 5, 7, 9, 11, 12]
    assert [exit + 1 for exit in even] == [2, 4, 6, 8, 10, 12]


@given(exits=st.integers(1, 40), groups=st.integers(1, 40), rounds=st.integers(1, 5))
def test_every_exit_learns_equally_often_and_the_last_always(exits: int, groups: int, rounds: int) -> None:
    if groups > max(1, exits - 1):
        with pytest.raises(OfframpError, match="groups"):
            exit_groups(exits, groups)
        return
    dealt = exit_groups(exits, groups)
    learnt = Counter(exit for step in range(rounds * groups) for exit in group_at(step, dealt))
    assert learnt.pop(exits - 1) == rounds * groups
    assert learnt == Counter(dict.fromkeys(range(exits - 1), rounds))


def gradients(model: PretrainingModel, rows: Rows, exits: tuple[int, ...]) -> dict[str, Tensor]:
    model.zero_grad()
    (model(rows, exits) * model.weights(exits)).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("order", "early"), [(True, 1.0), (False, 1.0), (False, 0.2)])
@pytest.mark.parametrize("exits", [(0, 1, 2, 3), (0, 2, 3), (1, 3)])
def test_a_layer_gets_the_mean_of_the_exits_above(
    exits: tuple[int, ...], order: bool, early: float, corpus: Corpus
) -> None:
    """Each exit's own gradient, taken alone and without equilibrium, averaged over the exits at or above the layer.

    The last exit may count more than the others.
    """
    rows = first_rows(corpus, order=order)
    unbalanced = starting_model(plan(order=order, early_weight=early, equilibrium=False), corpus.tokenizer)
    alone = {exit: gradients(unbalanced, rows, (exit,)) for exit in exits}
    model = starting_model(plan(order=order, early_weight=early), corpus.tokenizer)
    together = gradients(model, rows, exits)
    for layer in range(4):
        above = [exit for exit in exits if exit >= layer]
        name = f"backbone.model.encoder.layer.{layer}.intermediate.dense.weight"
        weights = sum(1.0 if exit == 3 else early for exit in above)
        mean = torch.stack([alone[exit][name] for exit in above]).sum(0) / weights
        torch.testing.assert_close(together[name], mean, rtol=1e-4, atol=1e-7)
    for exit in exits:  # an exit's own weights get their gradient as it is
        name = f"heads.words.{exit}.dense.weight"
        torch.testing.assert_close(together[name], alone[exit][name], rtol=1e-4, atol=1e-7)


def test_without_equilibrium_a_layer_gets_the_sum(corpus: Corpus) -> None:
    rows, model = first_rows(corpus), starting_model(plan(equilibrium=False), corpus.tokenizer)
    name = "backbone.model.encoder.layer.0.intermediate.dense.weight"
    alone = [gradients(model, rows, (exit,))[name] for exit in range(4)]
    torch.testing.assert_close(gradients(model, rows, (0, 1, 2, 3))[name], sum(alone), rtol=1e-4, atol=1e-7)


def test_a_groups_step_leaves_other_exits_alone(corpus: Corpus) -> None:
    chosen = plan(groups=3, steps=3)
    model = starting_model(chosen, corpus.tokenizer).train()
    stepper = Stepper(model, chosen, bf16=False)
    before = {name: p.clone() for name, p in model.named_parameters()}
    stepper.step(first_rows(corpus), exit_groups(4, 3)[1], 0.01)
    moved = {
        number
        for number in range(4)
        if not torch.equal(before[f"heads.words.{number}.dense.weight"], model.heads.words[number].dense.weight)
    }
    assert moved == {1, 3}


@pytest.mark.parametrize("order", [True, False])
def test_micro_batches_are_one_batch(order: bool, corpus: Corpus) -> None:
    weights = []
    for accumulate in (1, 4):
        chosen = plan(accumulate=accumulate, order=order)
        stepper = Stepper(starting_model(chosen, corpus.tokenizer).train(), chosen, bf16=False)
        losses = stepper.step(first_rows(corpus, order=order), (0, 1, 3), 0.01)
        weights.append((losses, stepper.state()["weights"]))
    torch.testing.assert_close(weights[0][0], weights[1][0], rtol=1e-4, atol=1e-6)
    for name, weight in weights[0][1].items():
        if "key.bias" not in name and "embeddings" not in name:  # rounding noise, which Adam scales up
            torch.testing.assert_close(weight, weights[1][1][name], rtol=2e-2, atol=2e-3)


def test_bf16_steps_on_full_weights(corpus: Corpus) -> None:
    """The model computes with rounded weights; what the optimisers keep is not rounded."""
    chosen = plan()
    stepper = Stepper(starting_model(chosen, corpus.tokenizer).train(), chosen, bf16=True)
    for _ in range(3):
        stepper.step(first_rows(corpus), (0, 3), 1e-4)
    kept = stepper.state()["weights"]
    matrix = "backbone.model.encoder.layer.0.intermediate.dense.weight"
    computed_with = dict(stepper.model.named_parameters())[matrix].clone()
    assert computed_with.dtype == torch.bfloat16
    assert torch.equal(kept[matrix].bfloat16(), computed_with)
    assert not torch.equal(kept[matrix].bfloat16().float(), kept[matrix])
    stepper.into_model()
    assert torch.equal(dict(stepper.model.named_parameters())[matrix], kept[matrix])


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 48, 16)])
def test_orthogonal_brings_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_muon_works_on_matrices_together_as_one_by_one() -> None:
    torch.manual_seed(0)
    shapes = [(8, 8), (8, 8), (24, 8), (8, 24), (24, 8)]
    start = [torch.randn(shape) for shape in shapes]
    slopes = [[torch.randn(shape) for shape in shapes] for _ in range(3)]

    def train(together: bool) -> list[Tensor]:
        parameters = [torch.nn.Parameter(matrix.clone()) for matrix in start]
        groups = [parameters] if together else [[parameter] for parameter in parameters]
        optimisers = [Muon(group, lr=0.1, weight_decay=0.1) for group in groups]
        for gradients in slopes:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            for optimiser in optimisers:
                optimiser.step()
        return [parameter.detach() for parameter in parameters]

    for one, other, first in zip(train(True), train(False), start, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
        assert not torch.equal(one, first)


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_matrices_inside_layers_are_muons(optimiser: str, corpus: Corpus) -> None:
    chosen = plan(optimiser=optimiser)
    model = starting_model(chosen, corpus.tokenizer)
    stepper = Stepper(model, chosen, bf16=False)
    by_muon = {id(p) for o in stepper.optimisers if isinstance(o, Muon) for g in o.param_groups for p in g["params"]}
    inside = {id(p) for p in model.backbone.model.encoder.parameters() if p.ndim == 2}
    assert by_muon == (inside if optimiser == "muon" else set())
    every = [id(p) for o in stepper.optimisers for g in o.param_groups for p in g["params"]]
    assert sorted(every) == sorted(id(p) for p in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": None}, "give a shape"),
        ({"steps": 0}, "steps must be 1"),
        ({"mask_rate": 1.0}, "mask rate"),
        ({"optimiser": "sgd"}, "optimiser"),
        ({"precision": "fp16"}, "precision"),
        ({"long_length": 32}, "must be longer"),
        ({"groups": 0}, "groups must be 1"),
        ({"learning_rate": -1.0}, "learning rate must be 0 or more"),
        ({"learning_rate": float("nan")}, "learning rate must be 0 or more"),
        ({"clip": -1.0}, "clip must be 0 or more"),
        ({"weight_decay": -5.0}, "weight decay must be 0 or more"),
        ({"seed": -3}, "seed must be 0 or more"),
    ],
)
def test_plans_that_make_no_sense(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        plan(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": {**SHAPE, "model_type": "gpt2"}}, "gpt2"),
        ({"shape": {**SHAPE, "hidden_size": 33}}, "no bert backbone can be built"),
        ({"length": 100}, "too long: the backbone has 64 positions"),
        ({"long_length": 100}, "too long"),
        ({"family": "albert"}, "a backbone of type bert cannot be written as albert"),
    ],
)
def test_shapes_that_cannot_be(settings: dict[str, object], message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        starting_model(plan(**settings), BertTokenizer())


def test_the_rate_rises_and_falls_in_lines() -> None:
    rates = [plan(steps=100, warmup=0.1, learning_rate=1.0).rate_at(step) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(1 / 90)
    assert sorted(rates[10:], reverse=True) == rates[10:]
