"""Model folders that `predict` opens in a moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import BertTokenizer

from tests.generated import WORDS
from tests.tiny import tiny_model


def model_folder(folder: Path, labels: tuple[str, ...] = ("bad", "good"), trained: Any = None, **model: Any) -> Path:
    """A model whose exits disagree, with a tokenizer for the generated texts; no labels: it answers with a number."""
    torch.manual_seed(3)
    made = tiny_model(**{"layers": 5, "num_labels": len(labels) or 1, **model})
    if labels:
        made.config.id2label = dict(enumerate(labels))
    return write(made, folder, trained)


def constant_model(folder: Path, outputs: list[float], trained: Any = None, **model: Any) -> Path:
    """A model without names for its labels that answers everything with the same logits."""
    made = tiny_model(**{"layers": 2, "num_labels": len(outputs), **model})
    with torch.no_grad():
        for name, parameter in made.exits.classifiers.named_parameters():
            parameter.copy_(torch.tensor(outputs) if name.endswith("bias") else torch.zeros_like(parameter))
    return write(made, folder, trained)


def write(model: Any, folder: Path, trained: Any) -> Path:
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    if trained is not None:
        (folder / "training.json").write_text(json.dumps({"task": trained}))
    return folder
