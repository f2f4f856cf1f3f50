"""The loop: schedules, accumulation, what is frozen, which mode the model is in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from offramp import OfframpError
from offramp.recipes import ELBERT, DeeBERT, Plain, RomeBERT, Schedule
from offramp.training import Step, train_on_batches
from tests.tiny import rows_of, tiny_batch, tiny_model, without_dropout

BATCH = tiny_batch(6, labels=3)


def test_learning_rate_rises_and_falls_over_the_steps_taken() -> None:
    """Three batches, two at a time: two steps an epoch, the second of one batch."""
    recipe = Plain(Schedule(learning_rate=1.0, epochs=2, warmup=0.25))
    steps = train_on_batches(
        tiny_model(), recipe, [BATCH] * 3, accumulate=2, make_optimiser=lambda groups: torch.optim.SGD(groups)
    )
    assert [step.learning_rates[0] for step in steps] == pytest.approx([0.0, 1.0, 2 / 3, 1 / 3])


@pytest.mark.parametrize(("steps", "rates"), [(1, [1.0]), (2, [0.0, 1 / 1.88])])
def test_a_single_step_does_not_rise(steps: int, rates: list[float]) -> None:
    recipe = Plain(Schedule(learning_rate=1.0, epochs=1, warmup=0.06))
    taken = train_on_batches(tiny_model(), recipe, [BATCH] * steps, make_optimiser=torch.optim.SGD)
    assert [step.learning_rates[0] for step in taken] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ({"max_steps": 5}, [1.0, 0.8, 0.6, 0.4, 0.2]),  # two batches an epoch: in the middle of the third
        ({"max_steps": 1}, [1.0]),
        ({"warmup_steps": 1}, [0.0, 1.0, 2 / 3, 1 / 3]),
        ({"warmup_steps": 0, "warmup": 0.5}, [1.0, 0.75, 0.5, 0.25]),
        ({"warmup_steps": 2, "max_steps": 4, "epochs": 9}, [0.0, 0.5, 1.0, 0.5]),
    ],
)
def test_steps_override_epochs_and_shares(schedule: dict[str, Any], rates: list[float]) -> None:
    recipe = Plain(Schedule(**{"learning_rate": 1.0, "epochs": 2, **schedule}))
    taken = train_on_batches(tiny_model(), recipe, [BATCH] * 2, make_optimiser=torch.optim.SGD)
    assert [step.learning_rates[0] for step in taken] == pytest.approx(rates)


def test_adam_has_the_epsilon_of_the_schedule() -> None:
    """One so large that the first step is the gradient over it, where it would be the learning rate."""
    moved = []
    for epsilon in (1e-8, 1e6):
        model = without_dropout(tiny_model())
        before = model.exits.classifiers["3"].weight.detach().clone()
        train_on_batches(model, Plain(Schedule(learning_rate=1e-3, epochs=1, adam_epsilon=epsilon)), [BATCH])
        moved.append(float((model.exits.classifiers["3"].weight.detach() - before).abs().max()))
    assert moved == [pytest.approx(1e-3, rel=1e-2), pytest.approx(0.0, abs=1e-8)]


def test_every_row_counts_the_same_however_batches_are_cut() -> None:
    cut = [rows_of(BATCH, torch.arange(4)), rows_of(BATCH, torch.arange(4, 6))]
    trained = []
    for batches, accumulate in (([BATCH], 1), (cut, 2)):
        torch.manual_seed(1)
        model = without_dropout(tiny_model()).double()
        recipe = Plain(Schedule(learning_rate=0.1, epochs=1))
        steps = train_on_batches(model, recipe, batches, accumulate=accumulate, make_optimiser=torch.optim.SGD)
        trained.append((steps[0].loss, [p.detach() for p in model.parameters()]))
    assert trained[0][0] == pytest.approx(trained[1][0])
    for left, right in zip(trained[0][1], trained[1][1], strict=True):
        torch.testing.assert_close(left, right)


def test_the_model_is_in_training_mode_only_while_training() -> None:
    model, modes = tiny_model(), []
    train_on_batches(model, Plain(), [BATCH], on_step=lambda _: modes.append(model.training))
    assert modes == [True] * 3
    assert not model.training


def test_what_the_user_froze_stays_frozen() -> None:
    model = tiny_model()
    embeddings = model.backbone.model.embeddings.requires_grad_(False)
    before = embeddings.word_embeddings.weight.clone()
    for recipe in (Plain(), DeeBERT(), RomeBERT(), ELBERT()):
        train_on_batches(model, recipe, [BATCH])
    assert torch.equal(embeddings.word_embeddings.weight, before)
    assert not any(parameter.requires_grad for parameter in embeddings.parameters())
    assert model.exits.classifiers["0"].weight.requires_grad
    with pytest.raises(OfframpError, match="all it would train is frozen"):
        train_on_batches(model.requires_grad_(False), Plain(), [BATCH])


def test_weight_decay_is_for_matrices() -> None:
    model = without_dropout(tiny_model())
    recipe = Plain(Schedule(learning_rate=1e-3, epochs=1, weight_decay=0.5, clip=1e-12))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    train_on_batches(
        model, recipe, [BATCH], make_optimiser=torch.optim.SGD
    )  # the gradient is clipped away: what moves is decay
    for name, parameter in model.named_parameters():
        early = name.startswith("exits.") and ".3." not in name
        factor = 1 - 1e-3 * 0.5 if parameter.ndim == 2 and not early else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor, rtol=1e-6, atol=1e-7)


def test_an_interrupted_phase_leaves_a_usable_model() -> None:
    model = tiny_model()

    def interrupt(step: Step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_on_batches(model, DeeBERT(), [BATCH], on_step=interrupt)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not model.training
