"""Backbone folders and data files made in a moment: what `offramp train` and its sisters are fed in tests."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModel, BertTokenizer

from tests.tiny import tiny_backbone

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD, BAD = ["good", "fine", "great"], ["bad", "poor", "awful"]
FILLER = ["a", "the", "film", "story", "cast", "is", "was", "and", "it", "plot", "scene", "with", "of", "very"]
WORDS = [*SPECIAL, *GOOD, *BAD, *FILLER, ",", "."]


def backbone_folder(
    folder: Path, family: str = "bert", layers: int = 3, neurons: int = 24, words: Sequence[str] = ()
) -> Path:
    """A small random backbone with a tokenizer that knows the generated texts, as a Hugging Face folder."""
    known = list(dict.fromkeys([*WORDS, *words]))
    torch.manual_seed(0)
    config = tiny_backbone(family, layers)
    config.intermediate_size = neurons
    config.vocab_size = max(config.vocab_size, len(known))
    config.initializer_range = 0.15  # so that a few steps teach it something
    AutoModel.from_config(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(known))
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def reviews(rows: int, seed: int = 0) -> list[tuple[str, str]]:
    """(text, verdict): a verdict is the kind of the one telling word."""
    draw = random.Random(seed)
    found = []
    for _ in range(rows):
        verdict = draw.choice(["good", "bad"])
        words = draw.choices(FILLER, k=draw.randint(2, 12))
        words.insert(draw.randint(0, len(words)), draw.choice(GOOD if verdict == "good" else BAD))
        found.append((" ".join(words), verdict))
    return found


def reviews_file(path: Path, rows: int = 200, seed: int = 0) -> Path:
    """A CSV with the columns review and verdict."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "verdict"])
        writer.writerows(reviews(rows, seed))
    return path
