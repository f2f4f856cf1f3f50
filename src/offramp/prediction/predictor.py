"""Texts in, labels or numbers out, in the same order and as a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.models.early_exit import Answer
from offramp.policies import Policy
from offramp.prediction.under_policy import UnderPolicy
from offramp.tasks.encoding import Row, text_encoder


class Prediction(NamedTuple):
    """The answer to one text."""

    label: str | float
    """The label, or the number in regression."""
    score: float | None
    """The label's probability at the exit; None in regression."""
    exit_layer: int


Text = str | tuple[str, str]
"""A text, or a pair of texts."""


class Predictor(UnderPolicy):
    """A model that answers with labels or numbers, under a policy.

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
        super().__init__(model, policy, batch_size, device)
        if self.model.objective.name == "span":
            raise OfframpError("this model answers questions with spans: use SpanPredictor, or offramp.predict")
        self.encoder = text_encoder(self.model, max_length, tokenizer)
        self.label_names = list(label_names or output_names(self.model))

    def stream(self, texts: Iterable[Text]) -> Iterator[Prediction]:
        """Answers in the order of the texts; reads ahead a little, and holds no more than that."""
        first = 0
        for read in self.in_parts(iter(texts)):
            found: dict[int, Prediction] = {}
            for picked, answer in self.in_batches(self._encode(read), self.encoder.pad, first):
                found.update(zip(picked, self._predictions(answer), strict=True))
            yield from (found[row] for row in range(len(read)))
            first += len(read)

    def _encode(self, texts: Sequence[Text]) -> list[Row]:
        if all(isinstance(text, str) for text in texts):
            return self.encoder(texts)  # type: ignore[arg-type]
        if not all(isinstance(text, tuple) and len(text) == 2 for text in texts):
            raise OfframpError("expected texts, or pairs of texts as tuples, and not some of each")
        return self.encoder([text[0] for text in texts], [text[1] for text in texts])

    def _predictions(self, answer: Answer) -> list[Prediction]:
        layers = answer.exit_layer.tolist()
        if self.model.objective.name == "regression":
            numbers = answer.logits.float().flatten().tolist()
            return [Prediction(number, None, layer) for number, layer in zip(numbers, layers, strict=True)]
        best = answer.logits.float().softmax(-1).max(-1)
        return [
            Prediction(self.label_names[label], score, layer)
            for label, score, layer in zip(best.indices.tolist(), best.values.tolist(), layers, strict=True)
        ]


def output_names(model: MultiExitModel) -> list[str]:
    """What the model calls its outputs, in their order."""
    return [name for _, name in sorted((model.config.id2label or {}).items())]
