"""Classifiers fine-tuned with plain transformers, in a moment: what `offramp add-exits` is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, BertTokenizer

from tests.generated import GOOD, WORDS, reviews
from tests.tiny import tiny_backbone

NAMES = ("bad", "good")
STEPS, ROWS = 60, 32


def fine_tuned(folder: Path, family: str = "bert", labels: int = 2, layers: int = 4, **config: Any) -> Path:
    """Of as many labels: good or bad; with more, or with one number, how many telling words a text has."""
    torch.manual_seed(0)
    shape = tiny_backbone(family, layers)
    quick = {"initializer_range": 0.15, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    shape.update({**quick, "num_labels": labels, **config})
    model = AutoModelForSequenceClassification.from_config(shape)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizer.from_pretrained(folder, model_max_length=36)
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3)
    rows = [(text, answer(text, verdict, labels)) for text, verdict in reviews(STEPS * ROWS, seed=9)]
    for start in range(0, len(rows), ROWS):
        texts, answers = zip(*rows[start : start + ROWS], strict=True)
        batch = tokenizer(list(texts), padding=True, return_tensors="pt", return_token_type_ids=False)
        optimiser.zero_grad()
        model(**batch, labels=torch.tensor(answers, dtype=torch.float if labels == 1 else torch.long)).loss.backward()
        optimiser.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def answer(text: str, verdict: str, labels: int) -> float:
    if labels == 2:
        return NAMES.index(verdict)
    number = sum(word in (*GOOD, "film", "story", "very") for word in text.split())
    return number / 2 if labels == 1 else min(number, labels - 1)
