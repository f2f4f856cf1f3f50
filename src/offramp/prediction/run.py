"""`offramp.predict`: texts, or questions on texts, and a model to a list of answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offramp.engine import Engine, Prediction, Text
from offramp.errors import OfframpError
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.prediction.span_predictor import SpanPrediction, SpanPredictor


def predict(
    model: MultiExitModel | str | Path,
    texts: Sequence[Text],
    policy: Policy | str | None = None,
    **options: Any,
) -> list[Prediction] | list[SpanPrediction]:
    """Answer texts (or pairs of texts) under a policy; where the model answers with spans, pairs (question, context).

    Options are those of `Engine` and `SpanPredictor`.

    >>> offramp.predict("runs/sst2", ["a fine film"], "entropy(0.1)")
    [Prediction(label='1', score=0.98, exit_layer=3, scores=(0.02, 0.98), error=None)]
    >>> offramp.predict("runs/squad", [("Who sat?", "The cat sat on the mat.")], "confidence(0.6)")[0].text
    'The cat'
    """
    if isinstance(texts, str):
        raise OfframpError("predict takes a list of texts: write [text]")
    opened = model if isinstance(model, MultiExitModel) else load(model)
    if opened.objective.name == "span":
        return list(SpanPredictor(opened, policy, **options).stream(texts))  # type: ignore[arg-type]
    if len({type(text) for text in texts if isinstance(text, str | tuple)}) > 1:
        raise OfframpError("expected texts, or pairs of texts as tuples, and not some of each")
    return Engine(opened, policy, **options)(texts)
