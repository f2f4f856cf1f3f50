"""A model whose exits mostly say the same, as those of a trained one do, and rows labelled to suit it."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import torch

import offramp
from tests.generated import reviews
from tests.prediction.models import write
from tests.tiny import tiny_model

NAMES = ("bad", "good")


def settled_model(folder: Path, labels: int = 2, trained: Any = None, **model: Any) -> Path:
    """One classifier for all exits, and layers that change little of what they are given."""
    torch.manual_seed(9)
    shape = {"layers": 4, "num_labels": labels, "poolers": 1, "classifiers": 1, "pooling": "mean"}
    made = tiny_model("bert", **{**shape, **model})
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "output.dense" in name:
                parameter.mul_(0.05)
            elif "classifiers" in name:
                parameter.mul_(3)  # sure of most rows
    if labels == 2:
        made.config.id2label = dict(enumerate(NAMES))
    return write(made, folder, trained)


def labelled_file(path: Path, model: Path, rows: int, seed: int = 0, wrong: float = 0.1) -> Path:
    """Texts with the model's own answers, but for some."""
    texts = [text for text, _ in reviews(rows, seed)]
    draw = random.Random(seed)
    answers = [answer.label for answer in offramp.Engine(model, "fixed(4)")(texts)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "verdict"])
        for text, answer in zip(texts, answers, strict=True):
            writer.writerow([text, answer if draw.random() > wrong else NAMES[answer == NAMES[0]]])
    return path
