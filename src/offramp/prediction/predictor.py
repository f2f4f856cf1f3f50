"""Texts in, answers out, in the same order and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from offramp.errors import OfframpError, one_line
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.device import find_device
from offramp.policies import Fixed, Policy, policy_from_json, policy_from_text
from offramp.tasks.encoding import Row, text_encoder

POLICY = "policy.json"
READ_AHEAD = 32
"""Batches whose texts are read, and sorted by length, together: little padding, and memory stays flat."""


class Prediction(NamedTuple):
    """The answer to one text."""

    label: str | float
    """The label, or the number in regression."""
    score: float | None
    """The label's probability at the exit; None in regression."""
    exit_layer: int


Text = str | tuple[str, str]
"""A text, or a pair of texts."""


def predict(
    model: MultiExitModel | str | Path,
    texts: Sequence[Text],
    policy: Policy | str | None = None,
    **options: Any,
) -> list[Prediction]:
    """Answer texts (or pairs of texts) under a policy.

    >>> offramp.predict("runs/sst2", ["a fine film"], "entropy(0.1)")
    [Prediction(label='1', score=0.98, exit_layer=3)]
    """
    if isinstance(texts, str):
        raise OfframpError("predict takes a list of texts: write [text]")
    return list(Predictor(model, policy, **options).stream(texts))


class Predictor:
    """A model under a policy.

    Args:
        model: a model, or the folder of one.
        policy: when to leave; default: the one in the model's folder or, where there is none, full depth.
        max_length: cut texts to so many tokens; default: as in training.
        batch_size: texts computed together.
        device: `auto` is the GPU where there is one.
        label_names: in the order of the model's outputs; default: those stored in the model.
    """

    def __init__(
        self,
        model: MultiExitModel | str | Path,
        policy: Policy | str | None = None,
        *,
        max_length: int | None = None,
        batch_size: int = 32,
        device: str = "auto",
        label_names: Sequence[str] | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.model = model if isinstance(model, MultiExitModel) else load(model)
        if self.model.objective.name == "span":
            raise OfframpError("this model answers questions with spans: predict is for labels and numbers")
        if batch_size < 1:
            raise OfframpError(f"batch size must be 1 or more, not {batch_size}")
        self.policy = policy_for(self.model, policy)
        self.policy.check(self.model.objective.name, self.model.exits.layers)
        self.encoder = text_encoder(self.model, max_length, tokenizer)
        self.batch_size = batch_size
        self.read_ahead = READ_AHEAD
        self.device = find_device(device)
        self.label_names = list(label_names or output_names(self.model))

    def stream(self, texts: Iterable[Text]) -> Iterator[Prediction]:
        """Answers in the order of the texts; reads ahead a little, and holds no more than that."""
        self.model.to(device=self.device)  # type: ignore[call-arg]
        rest, first = iter(texts), 0
        while True:
            window, wrong = read_some(rest, self.batch_size * self.read_ahead)
            if window:
                yield from self._window(self._encode(window), first)
            if wrong is not None:
                raise wrong
            if not window:
                return
            first += len(window)

    def _encode(self, texts: Sequence[Text]) -> list[Row]:
        if all(isinstance(text, str) for text in texts):
            return self.encoder(texts)  # type: ignore[arg-type]
        if not all(isinstance(text, tuple) and len(text) == 2 for text in texts):
            raise OfframpError("expected texts, or pairs of texts as tuples, and not some of each")
        return self.encoder([text[0] for text in texts], [text[1] for text in texts])

    def _window(self, rows: list[Row], first: int) -> list[Prediction]:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        answers: dict[int, Prediction] = {}
        for start in range(0, len(order), self.batch_size):
            picked = order[start : start + self.batch_size]
            batch = self.encoder.pad([rows[i] for i in picked])
            samples = torch.tensor([first + i for i in picked])
            answers.update(zip(picked, self._answer(batch, samples), strict=True))
        return [answers[i] for i in range(len(rows))]

    def _answer(self, batch: dict[str, Tensor], samples: Tensor) -> list[Prediction]:
        on_device = {name: tensor.to(self.device) for name, tensor in batch.items()}
        answer = self.model.answer(self.policy, **on_device, samples=samples.to(self.device))
        layers = answer.exit_layer.tolist()
        if self.model.objective.name == "regression":
            numbers = answer.logits.float().flatten().tolist()
            return [Prediction(number, None, layer) for number, layer in zip(numbers, layers, strict=True)]
        best = answer.logits.float().softmax(-1).max(-1)
        return [
            Prediction(self.label_names[label], score, layer)
            for label, score, layer in zip(best.indices.tolist(), best.values.tolist(), layers, strict=True)
        ]


def read_some(texts: Iterator[Text], most: int) -> tuple[list[Text], OfframpError | None]:
    """The next texts, and what is wrong with the one after them: those before it can be answered first."""
    read: list[Text] = []
    try:
        for text in islice(texts, most):
            read.append(text)
    except OfframpError as error:
        return read, error
    return read, None


def output_names(model: MultiExitModel) -> list[str]:
    """What the model calls its outputs, in their order."""
    return [name for _, name in sorted((model.config.id2label or {}).items())]


def policy_for(model: MultiExitModel, asked: Policy | str | None) -> Policy:
    """The policy asked for, or the folder's own, or full depth."""
    if isinstance(asked, Policy):
        return asked
    if isinstance(asked, str):
        return policy_from_text(asked)
    own = folder_policy(Path(model.name_or_path)) if model.name_or_path else None
    return own or Fixed(model.exits.layers[-1])


def folder_policy(folder: Path) -> Policy | None:
    """The policy that was calibrated for a model, if there is one in its folder."""
    path = folder / POLICY
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return policy_from_json(data["policy"] if isinstance(data.get("policy"), dict) else data)
    except (ValueError, AttributeError) as error:
        raise OfframpError(f"{path} holds no policy ({one_line(error)})") from error
