"""Traces made without data files: random ones, and those of tiny models on random rows."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from offramp.evaluation import ModelShape, Trace, collect
from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row, TextEncoder
from offramp.tasks.task import Examples, Task
from tests.tiny import VOCABULARY

ENCODER = TextEncoder(SimpleNamespace(pad_token_id=1), max_length=40, token_types=False)


def random_trace(exits: int = 6, samples: int = 120, classes: int = 2, labelled: bool = True, **changes: Any) -> Trace:
    """Exits that become better and surer from layer to layer; one class is regression."""
    draw = np.random.default_rng(0)
    labels = draw.normal(size=samples) if classes == 1 else draw.integers(0, classes, samples)
    truth = labels[:, None] if classes == 1 else np.eye(classes)[labels]
    sureness = np.linspace(0.3, 3, exits)[:, None, None]
    logits = sureness * truth * (1 if classes == 1 else 2) + draw.normal(size=(exits, samples, classes))
    settings: dict[str, Any] = {
        "logits": logits.astype(np.float32),
        "labels": labels if labelled else None,
        "lengths": draw.integers(5, 128, samples),
        "exit_layers": tuple(range(1, exits + 1)),
        "shape": ModelShape("bert", exits, 768, 12, 3072, classes, pooler=768),
        "task": "made/up",
        "label_names": () if classes == 1 else tuple(f"label {c}" for c in range(classes)),
        "metrics": ("pearson", "spearman") if classes == 1 else ("accuracy",),
        "split": "dev",
        "seconds": 2.0,
    }
    return Trace(**settings | changes)


def gated_trace(**changes: Any) -> Trace:
    """With gates that keep units at random; folding deleted three heads of the third layer."""
    draw = np.random.default_rng(1)
    rates = draw.random((6, 12)).round(3)
    rates[2, 9:] = math.nan
    counts = {
        "heads_kept": draw.integers(0, 13, (6, 120)),
        "neurons_kept": 64 * draw.integers(0, 49, (6, 120)),
        "predictor_flops": np.full(6, 6e5),
        "head_rates": rates,
        "neuron_rates": draw.random((6, 48)),
    }
    return random_trace(**counts | changes)


def made_task(classes: int = 3, examples: Examples | None = None) -> Task:
    labels = tuple(map(str, range(classes))) if classes > 1 else ()
    return Task("made/up", labels, ("accuracy",) if labels else ("pearson",), False, {"dev": lambda: examples})


def random_rows(count: int = 24, longest: int = 30, seed: int = 0) -> list[Row]:
    draw = random.Random(seed)
    return [Row([draw.randrange(4, VOCABULARY) for _ in range(draw.randint(2, longest))]) for _ in range(count)]


def trace_of(model: MultiExitModel, rows: list[Row], labelled: bool = True, **settings: Any) -> Trace:
    draw = random.Random(1)
    answers = [draw.randrange(model.outputs) if model.outputs > 1 else draw.random() for _ in rows]
    examples = Examples([""] * len(rows), None, answers if labelled else None, "made up")
    return collect(model, made_task(model.outputs), examples, rows, ENCODER, **settings)


def batch_of(rows: list[Row]) -> dict[str, torch.Tensor]:
    return ENCODER.pad(rows)
