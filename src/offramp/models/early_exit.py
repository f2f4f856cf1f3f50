"""The reference way to answer under a policy: plain torch, one layer after another, finished rows leave the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from offramp.models.batch import check_batch
from offramp.policies import Policy, select_rows

if TYPE_CHECKING:
    from offramp.models.modeling import MultiExitModel


@dataclass(frozen=True)
class Answer:
    """What a batch was answered: the logits each row left with, and where it left."""

    logits: Tensor  # (B, C), or (B, T, 2) for spans
    exit: Tensor  # (B,) number of the exit, 0-based
    exit_layer: Tensor  # (B,) layer of that exit, 1-based


@torch.no_grad()
def answer(
    model: MultiExitModel,
    policy: Policy,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    samples: Tensor | None = None,
) -> Answer:
    """Run the layers, ask the policy after each exit, and stop computing a row once the policy lets it go.

    `samples` numbers the rows for policies that look them up (`Scripted`); default 0 … B-1.
    """
    layers = model.exits.layers
    policy.check(model.objective.name, layers)
    attention_mask = check_batch(model.backbone, input_ids, attention_mask, token_type_ids)
    live = torch.arange(len(input_ids), device=input_ids.device)  # rows still in the batch
    state = policy.start(live if samples is None else samples)
    hidden = model.backbone.embed(input_ids, token_type_ids)
    mask = model.backbone.mask(attention_mask, hidden)
    exit_of_row = torch.full_like(live, len(layers) - 1)
    logits_of_row: Tensor | None = None
    reached = 0
    for exit, layer in enumerate(layers):
        for index in range(reached, layer):
            hidden, _ = model.layer(index, hidden, mask, attention_mask)
        reached = layer
        logits = model.exits(exit, hidden, attention_mask)
        if logits_of_row is None:
            logits_of_row = torch.empty(len(input_ids), *logits.shape[1:], dtype=logits.dtype, device=logits.device)
        last = exit == len(layers) - 1  # takes whoever is left, whatever the policy looks at
        if not last and not policy.asks(exit, layers):
            continue
        if last:
            leave = torch.ones_like(live, dtype=torch.bool)
        else:
            leave, state = policy.step(layer, logits, state)
        logits_of_row[live[leave]] = logits[leave]
        exit_of_row[live[leave]] = exit
        stay = ~leave
        if not bool(stay.any()):
            break
        if not bool(stay.all()):
            live, hidden, attention_mask = live[stay], hidden[stay], attention_mask[stay]
            mask = model.backbone.mask(attention_mask, hidden)
            state = select_rows(state, stay)
    assert logits_of_row is not None
    return Answer(logits_of_row, exit_of_row, torch.tensor(layers, device=live.device)[exit_of_row])
