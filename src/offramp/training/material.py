"""What a run works with: the model with its new exits, the encoded rows, and the dev scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accelerate.utils import set_seed
from numpy.typing import NDArray

from offramp.errors import OfframpError
from offramp.evaluation.flops import ModelShape, share_kept
from offramp.evaluation.gate_counting import GateCounting
from offramp.evaluation.trace import exit_logits
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row, TextEncoder, text_encoder, what_is_cut
from offramp.tasks.labels import adopt_labels, in_model_order, task_numbers
from offramp.tasks.metrics import predictions_of, score
from offramp.tasks.squad import Questions, WindowEncoder, best_spans, trainable, window_encoder
from offramp.tasks.task import Examples, Task
from offramp.training.plan import Plan

Label = int | float | tuple[int, int]
"""A label's number, a number, or the tokens a span starts and ends with."""

FEWEST = 3
"""Training rows of a label; of fewer nothing can be learnt."""


@dataclass(frozen=True)
class Material:
    """What every phase works with."""

    model: MultiExitModel
    encoder: TextEncoder | WindowEncoder
    rows: Sequence[Row]
    labels: Sequence[Label]
    dev: DevScores | None
    trained_on: str
    """The digest of the training rows."""


def prepare(plan: Plan, task: Task) -> Material:
    """Open the backbone, give it the task's exits, and read the rows."""
    if "train" not in task.splits:
        raise OfframpError(f"{task.name} has no training rows here (only {', '.join(task.splits)}): add a train file")
    if plan.keep == "best" and not task.dev_splits:
        raise OfframpError(f"{task.name} has no dev rows to tell the best weights by: give some, or keep the last")
    if plan.stride is not None and not task.spans:
        raise OfframpError(f"stride {plan.stride}: {task.name} has no contexts to read in windows: omit --stride")
    set_seed(plan.seed)  # new exits are drawn from it
    model = load(plan.backbone, num_labels=None if task.spans else len(task.labels) or 1, span=task.spans, **plan.load)
    model.float()
    model.backbone.model.embeddings.requires_grad_(not plan.freeze_embeddings)
    return spans_of(plan, task, model) if task.spans else labels_of(plan, task, model)


def labels_of(plan: Plan, task: Task, model: MultiExitModel) -> Material:
    """Texts, and a label or number for each."""
    encoder = text_encoder(model, plan.max_length)
    model.config.max_text_tokens = encoder.max_length
    adopt_labels(model, task)
    examples = task.split("train")
    dev = LabelScores(model, encoder, task, task.split(task.dev_splits[0])) if task.dev_splits else None
    labels = in_model_order(model, task, examples)
    return Material(model, encoder, encoder.examples(examples), labels, dev, examples.digest())


def spans_of(plan: Plan, task: Task, model: MultiExitModel) -> Material:
    """Windows, and for each the tokens its answer starts and ends with."""
    if model.objective.name != "span":
        raise OfframpError(f"{task.name} asks for spans, but {plan.backbone} was trained to answer with labels")
    encoder = window_encoder(model, plan.max_length, plan.stride)
    model.config.max_text_tokens, model.config.window_stride = encoder.max_length, encoder.stride
    questions = task.split("train")
    windows = encoder(trainable(questions))
    dev = SpanScores(model, encoder, task, task.split(task.dev_splits[0])) if task.dev_splits else None
    labels = [(window.start, window.end) for window in windows]
    return Material(model, encoder, [window.row for window in windows], labels, dev, questions.digest())


def said_of_long_texts(material: Material) -> str | None:
    """How many are cut; windows of a question are not."""
    most = material.encoder.max_length
    cut = 0 if material.model.objective.name == "span" else sum(len(row) >= most for row in material.rows)
    return what_is_cut(cut, len(material.rows), most)


def said_of_rare_labels(task: Task) -> str | None:
    """Labels that next to no row has: a slip of the pen becomes a class of its own."""
    if task.kind != "classification":
        return None
    rows = np.bincount(task.split("train").labels, minlength=len(task.labels))
    rare = [f"{label!r} ({count})" for label, count in zip(task.labels, rows, strict=True) if count < FEWEST]
    return f"labels of fewer than {FEWEST} training rows: {', '.join(rare)}; is one written wrongly?" if rare else None


def said_of_labels_alike(task: Task) -> str | None:
    """Labels that differ in upper and lower case alone."""
    alike = defaultdict(list)
    for label in task.labels:
        alike[label.casefold()].append(repr(label))
    found = ["/".join(labels) for labels in alike.values() if len(labels) > 1]
    return (
        f"labels that differ in upper and lower case alone: {', '.join(found)}; each is learnt apart" if found else None
    )


def exit_names(layers: Sequence[int]) -> list[str]:
    """What exits are called in records: their layers; the second after one layer is `4b`."""
    return [f"{layer}b" if layer in layers[:exit] else str(layer) for exit, layer in enumerate(layers)]


class DevScores(ABC):
    """The dev score of every exit, whenever it is asked for."""

    def __init__(self, model: MultiExitModel, task: Task) -> None:
        self.model = model
        self.metric = task.metrics[0]
        self.split = task.dev_splits[0]
        self.flops: float | None = None

    @abstractmethod
    def __call__(self) -> list[float]:
        """By exit, first to last."""

    @abstractmethod
    def __len__(self) -> int:
        """How many answers are scored."""

    def record(self) -> dict[str, Any]:
        exits = dict(zip(exit_names(self.model.exits.layers), self(), strict=True))
        found = {"split": self.split, "rows": len(self), "metric": self.metric, "exits": exits}
        return found if self.flops is None else {**found, "flops": round(self.flops, 4)}

    def logits_of(self, rows: Sequence[Row], encoder: TextEncoder | WindowEncoder) -> NDArray[np.float32]:
        """What every exit says; and `flops`, the share of a full pass's that the gates kept at full depth."""
        gated = self.model.gates is not None and not self.model.gates.are_open
        counts = GateCounting(self.model, len(rows)) if gated else None
        logits = exit_logits(self.model, rows, encoder, gates=counts)
        lengths = np.array([len(row) for row in rows])
        self.flops = None if counts is None else share_kept(ModelShape.of(self.model), lengths, counts.counts())
        return logits


class LabelScores(DevScores):
    """Of labels or numbers."""

    def __init__(self, model: MultiExitModel, encoder: TextEncoder, task: Task, examples: Examples) -> None:
        super().__init__(model, task)
        self.encoder = encoder
        self.rows = encoder.examples(examples)
        self.labels = np.asarray(examples.labels)
        self.task_numbers = np.asarray(task_numbers(model, task))

    def __len__(self) -> int:
        return len(self.rows)

    def __call__(self) -> list[float]:
        logits = self.logits_of(self.rows, self.encoder)  # (E, N, C)
        answers = predictions_of(logits)  # (E, N)
        if self.task_numbers.size:  # labels, not numbers
            answers = self.task_numbers[answers]
        return [score(self.metric, of_exit, self.labels) for of_exit in answers]


class SpanScores(DevScores):
    """Of answers to questions."""

    def __init__(self, model: MultiExitModel, encoder: WindowEncoder, task: Task, questions: Questions) -> None:
        super().__init__(model, task)
        self.encoder = encoder
        self.questions = questions
        self.windows = encoder(questions)

    def __len__(self) -> int:
        return len(self.questions)

    def __call__(self) -> list[float]:
        rows = [window.row for window in self.windows]
        logits = self.logits_of(rows, self.encoder)  # (E, all tokens, 2)
        each = np.split(logits, np.cumsum([len(row) for row in rows])[:-1], axis=1)
        table = best_spans(self.questions, self.windows, each)
        return [table.scores(np.full(len(rows), exit))[self.metric] for exit in range(len(logits))]
