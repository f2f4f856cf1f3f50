"""A small loop that runs a recipe's phases over batches in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes import Phase, Recipe
from offramp.training.phase_gradients import PhaseGradients

Batch = Mapping[str, Tensor]
"""A model's inputs by name, and `labels`."""
MakeOptimiser = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Step:
    """One optimiser step, as it happened."""

    phase: str
    loss: float
    gradient_norm: float
    learning_rates: tuple[float, ...]


def train_on_batches(
    model: MultiExitModel,
    recipe: Recipe,
    batches: Sequence[Batch],
    *,
    accumulate: int = 1,
    make_optimiser: MakeOptimiser = torch.optim.AdamW,
    on_step: Callable[[Step], None] | None = None,
) -> list[Step]:
    """Train a model in place by a recipe, going over `batches` in order once an epoch; returns every step taken."""
    if not len(batches):
        raise OfframpError("no batches to train on")
    recipe.prepare(model)
    steps: list[Step] = []
    for phase in recipe.phases(model):
        for step in run_phase(model, phase, batches, accumulate, make_optimiser):
            steps.append(step)
            if on_step is not None:
                on_step(step)
        model.mark_trained(phase.trained_exits(model))
    return steps


def run_phase(
    model: MultiExitModel, phase: Phase, batches: Sequence[Batch], accumulate: int, make_optimiser: MakeOptimiser
) -> Iterable[Step]:
    """One phase with a fresh optimiser and schedule; the model is in training mode only as long as it runs."""
    total = phase.schedule.steps(-(-len(batches) // accumulate))
    with PhaseGradients(model, phase) as gradients:
        optimiser = make_optimiser(parameter_groups(gradients.trained, phase))
        shapes = learning_rate_shapes(phase, len(optimiser.param_groups), total)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, shapes)
        model.train()
        try:
            for micro_batches in islice(epoch_after_epoch(batches, accumulate), total):
                loss = add_all(gradients, micro_batches)
                norm = gradients.finish()
                rates = tuple(float(group["lr"]) for group in optimiser.param_groups)
                optimiser.step()
                scheduler.step()
                yield Step(phase.name, loss, norm, rates)
                gradients.clear()
        finally:
            model.eval()


def epoch_after_epoch(batches: Sequence[Batch], accumulate: int) -> Iterator[list[Batch]]:
    """The micro-batches of each step, without end; no step takes them from two epochs."""
    while True:
        stream = iter(batches)
        while micro_batches := list(islice(stream, accumulate)):
            yield micro_batches


def add_all(gradients: PhaseGradients, micro_batches: Sequence[Batch]) -> float:
    """Gather the gradient of one step, each row counting the same; the mean loss of its rows."""
    rows = [len(next(iter(batch.values()))) for batch in micro_batches]
    shares = [count / sum(rows) for count in rows]
    return sum(share * gradients.add(batch, share) for batch, share in zip(micro_batches, shares, strict=True))


def parameter_groups(trained: Mapping[str, nn.Parameter], phase: Phase) -> list[dict[str, Any]]:
    """Matrices with weight decay, biases and norms without, then the phase's constant groups; one epsilon for all."""
    scheduled = [parameter for name, parameter in trained.items() if name not in phase.constant]
    matrices = [parameter for parameter in scheduled if parameter.ndim >= 2]
    others = [parameter for parameter in scheduled if parameter.ndim < 2]
    rate, decay = phase.schedule.learning_rate, phase.schedule.weight_decay
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": decay, "lr": rate},
        {"params": others, "weight_decay": 0.0, "lr": rate},
        *(
            {
                "params": [trained[name] for name in sorted(group.names) if name in trained],
                "weight_decay": 0.0,
                "lr": group.learning_rate,
            }
            for group in phase.constant_groups
        ),
    ]
    return [{**group, "eps": phase.schedule.adam_epsilon} for group in groups]


def learning_rate_shapes(phase: Phase, groups: int, total: int) -> list[Callable[[int], float]]:
    """For each parameter group the factor on its learning rate at a step.

    The first step of a rise is at 0: a single step does not rise, or it would teach nothing.
    """
    schedule = phase.schedule
    warmup = schedule.warmup * total if total > 1 else 0.0  # not rounded: 6 % of 10 steps is 0.6 of a step
    if schedule.warmup_steps is not None:
        warmup = schedule.warmup_steps

    def rise_and_fall(step: int) -> float:
        if step < warmup:
            return step / max(1.0, warmup)
        return max(0.0, (total - step) / max(1.0, total - warmup))

    constant = len(phase.constant_groups)
    return [rise_and_fall] * (groups - constant) + [lambda step: 1.0] * constant
