"""A model of each family for each kind of task, rows to ask them about, and what every exit says to them."""

from __future__ import annotations

import torch

from offramp import MultiExitForQuestionAnswering
from tests.policies.matrix import SAMPLES
from tests.tiny import FAMILIES, tiny_batch, tiny_model


def growing_sure(family: str) -> MultiExitForQuestionAnswering:
    """A model of spans whose exits look at tokens alike, each three times as sure as the one before."""
    model = tiny_model(family, layers=5, span=True, poolers=0)
    heads = model.exits.classifiers
    with torch.no_grad():
        for exit in range(1, 5):
            heads[str(exit)].weight.copy_(heads["0"].weight * 3**exit)
    return model


torch.manual_seed(0)
MODELS = {
    (family, task): tiny_model(family, layers=5, num_labels=3 if task == "classification" else 1)
    for family in FAMILIES
    for task in ("classification", "regression")
} | {(family, "span"): growing_sure(family) for family in FAMILIES}
BATCH = tiny_batch(SAMPLES, 14)
with torch.no_grad():
    TRACES = {key: torch.stack(model(**BATCH).exit_logits) for key, model in MODELS.items()}
