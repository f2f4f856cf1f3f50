"""What a run works with: the model with its new exits, the encoded rows, and the dev scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accelerate.utils import set_seed

from offramp.errors import OfframpError
from offramp.evaluation.trace import exit_logits
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row, TextEncoder, text_encoder
from offramp.tasks.labels import adopt_labels, in_model_order, task_numbers
from offramp.tasks.metrics import predictions_of, score
from offramp.tasks.task import Examples, Task
from offramp.training.plan import Plan


@dataclass(frozen=True)
class Material:
    """What every phase works with."""

    model: MultiExitModel
    encoder: TextEncoder
    rows: list[Row]
    labels: list[int] | list[float]
    dev: DevScores | None


def prepare(plan: Plan, task: Task) -> Material:
    """Open the backbone, give it the task's exits, and read the rows."""
    if "train" not in task.splits:
        raise OfframpError(f"{task.name} has no training rows here (only {', '.join(task.splits)}): add a train file")
    if plan.keep == "best" and not task.dev_splits:
        raise OfframpError(f"{task.name} has no dev rows to tell the best weights by: give some, or keep the last")
    set_seed(plan.seed)  # new exits are drawn from it
    model = load(plan.backbone, num_labels=len(task.labels) or 1, **plan.load).float()
    encoder = text_encoder(model, plan.max_length)
    model.config.max_text_tokens = encoder.max_length
    model.backbone.model.embeddings.requires_grad_(not plan.freeze_embeddings)
    adopt_labels(model, task)
    examples = task.split("train")
    dev = DevScores(model, encoder, task, task.split(task.dev_splits[0])) if task.dev_splits else None
    return Material(model, encoder, encoder.examples(examples), in_model_order(model, task, examples), dev)


def exit_names(layers: Sequence[int]) -> list[str]:
    """What exits are called in records: their layers; the second after one layer is `4b`."""
    return [f"{layer}b" if layer in layers[:exit] else str(layer) for exit, layer in enumerate(layers)]


class DevScores:
    """The dev score of every exit, whenever it is asked for."""

    def __init__(self, model: MultiExitModel, encoder: TextEncoder, task: Task, examples: Examples) -> None:
        self.model = model
        self.encoder = encoder
        self.metric = task.metrics[0]
        self.split = task.dev_splits[0]
        self.rows = encoder.examples(examples)
        self.labels = np.asarray(examples.labels)
        self.task_numbers = np.asarray(task_numbers(model, task))

    def __call__(self) -> list[float]:
        logits = exit_logits(self.model, self.rows, self.encoder)  # (E, N, C)
        answers = predictions_of(logits)  # (E, N)
        if self.task_numbers.size:  # labels, not numbers
            answers = self.task_numbers[answers]
        return [score(self.metric, of_exit, self.labels) for of_exit in answers]

    def record(self) -> dict[str, Any]:
        exits = dict(zip(exit_names(self.model.exits.layers), self(), strict=True))
        return {"split": self.split, "rows": len(self.rows), "metric": self.metric, "exits": exits}
