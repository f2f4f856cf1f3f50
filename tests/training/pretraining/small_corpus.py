"""A corpus with something to learn in it, and plans that take a second."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from offramp.training.pretraining import Corpus, PretrainingPlan, prepare_corpus
from tests.training.pretraining.written import write_text

SHAPE = {
    "model_type": "bert",
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.15,  # so narrow a network learns nothing for long from BERT's 0.02
}


def small_text(path: Path, documents: int = 50) -> Path:
    """Each document keeps to two words of its own: who looks around can guess."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=4)) for _ in range(40)]
    texts = []
    for number in range(documents):
        own = [words[number % 40], words[(7 * number + 3) % 40]]
        texts.append([" ".join(draw.choices(own, k=draw.randint(6, 12))) + "." for _ in range(8)])
    return write_text(path, texts)


def small_pairs(path: Path, count: int = 64) -> Path:
    """Pairs that share more words, or fewer: the share is the answer."""
    draw = random.Random(0)
    rows = ["text1,text2,score"]
    for number in range(count):
        own, other = draw.sample("abcdefgh", 2)
        alike = number % 5
        rows.append(f"{own} {own} {own} {own},{' '.join([own] * alike + [other] * (4 - alike))},{alike}.5")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def small_corpus(folder: Path, **options: Any) -> Corpus:
    return prepare_corpus(
        [small_text(folder / "text.txt")], folder / "corpus", **{"size": 120, "held_out": 0.05, **options}
    )


def plan(**settings: Any) -> PretrainingPlan:
    standard: dict[str, Any] = {"steps": 12, "batch_size": 8, "length": 32, "learning_rate": 0.01}
    if "start" not in settings:
        standard["shape"] = SHAPE
    return PretrainingPlan(**{**standard, **settings})
