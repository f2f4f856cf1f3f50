"""A phase that trains nothing but heads, on states that were computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.recipes import Forward, Phase
from offramp.training.loop import learning_rate_shapes, parameter_groups
from offramp.training.pooled_states import PooledStates

OnStep = Callable[[int, int, float], None]
"""Told how many steps are done, of how many, and the last one's loss."""


def train_heads(
    model: MultiExitModel, phase: Phase, seen: PooledStates, seed: int = 0, on_step: OnStep | None = None
) -> int:
    """Run a phase on all rows, in an order that depends on the seed alone, without dropout; how many steps it took.

    The phase must train exits below the last only, and its losses look at logits, not at labels.
    """
    heads = {name: p for name, p in model.named_parameters() if name in phase.trains}
    if not_heads := [name for name in phase.trains if not name.startswith("exits.")]:
        raise OfframpError(f"phase {phase.name!r} trains {not_heads[0]}, too: the states would change with it")
    schedule = phase.schedule
    steps = schedule.steps(-(-len(seen) // schedule.batch_size))
    optimiser = torch.optim.AdamW(parameter_groups(heads, phase), fused=True)  # a step costs as much as a pass, else
    rates = torch.optim.lr_scheduler.LambdaLR(
        optimiser, learning_rate_shapes(phase, len(optimiser.param_groups), steps)
    )
    wanted = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    model.eval()
    try:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in heads)
        for done, rows in enumerate(islice(_rows_of_steps(len(seen), schedule.batch_size, seed), steps), start=1):
            loss = _loss(model, phase, seen, rows)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(heads.values(), schedule.clip or torch.inf)
            optimiser.step()
            rates.step()
            if on_step is not None:
                on_step(done, steps, float(loss.detach()))
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(wanted[name])
            parameter.grad = None
    return steps


def _rows_of_steps(rows: int, batch_size: int, seed: int) -> Iterator[np.ndarray]:
    """Epoch after epoch, each in an order of its own, without end."""
    draw = np.random.default_rng(seed)
    while True:
        order = draw.permutation(rows)
        for start in range(0, rows, batch_size):
            yield np.sort(order[start : start + batch_size])


def _loss(model: MultiExitModel, phase: Phase, seen: PooledStates, rows: np.ndarray) -> Tensor:
    states = torch.from_numpy(seen.states[rows]).to(model.device)  # (B, E - 1, H)
    last = torch.from_numpy(seen.last[rows]).to(model.device)
    logits = [model.exits.head(exit, states[:, exit]) for exit in range(states.shape[1])]
    forward = Forward([*logits, last], last, model.objective, model)
    return torch.stack([loss(forward) for loss in phase.losses]).sum()
