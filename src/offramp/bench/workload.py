"""What is measured: models of known shapes with random weights, rows of made-up tokens, and scripted exits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import AlbertConfig, BertConfig, PreTrainedConfig, RobertaConfig

from offramp.models import MultiExitConfig, MultiExitForSequenceClassification, MultiExitModel
from offramp.policies import Policy, Scripted
from offramp.tasks.encoding import Row

MEAN_TOKENS, FEWEST_TOKENS, MOST_TOKENS = 26, 4, 128
SPREAD = 2.0
"""The shape of the gamma distribution that lengths are drawn from: short texts are many, long ones few."""
FIRST_WORD = 1000
"""Token ids below are special ones, or unused, in BERT's vocabulary."""


@dataclass(frozen=True)
class Shape:
    """The size of a backbone."""

    family: str
    layers: int
    width: int
    heads: int
    neurons: int
    vocabulary: int = 30522

    def config(self) -> PreTrainedConfig:
        sizes: dict[str, Any] = {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "intermediate_size": self.neurons,
            "vocab_size": self.vocabulary,
        }
        if self.family == "roberta":
            return RobertaConfig(**sizes, max_position_embeddings=514, type_vocab_size=1)
        if self.family == "albert":
            return AlbertConfig(**sizes, embedding_size=128)
        return BertConfig(**sizes)


SHAPES = {
    "bert-base": Shape("bert", 12, 768, 12, 3072),
    "bert-large": Shape("bert", 24, 1024, 16, 4096),
    "roberta-base": Shape("roberta", 12, 768, 12, 3072, 50265),
    "albert-base": Shape("albert", 12, 768, 12, 3072, 30000),
    "minilm": Shape("bert", 6, 384, 12, 1536),
    "tiny": Shape("bert", 4, 128, 2, 512),
}
"""Models that `offramp bench` knows by name: shapes, with random weights."""


def model_of(shape: Shape, seed: int = 0) -> MultiExitForSequenceClassification:
    """A model of that shape with random weights and an exit after every layer."""
    torch.manual_seed(seed)
    settings: dict[str, Any] = {"backbone_config": shape.config(), "num_labels": 2}
    model = MultiExitForSequenceClassification(MultiExitConfig(**settings))
    model.eval()
    return model


def made_up_rows(count: int, model: MultiExitModel, seed: int = 0) -> list[Row]:
    """Rows of random tokens, 4 to 128 long and 26 on average, as sentences are."""
    backbone = model.backbone
    draw = np.random.default_rng(seed)
    lengths = np.rint(draw.gamma(SPREAD, MEAN_TOKENS / SPREAD, count)).astype(int)
    lengths = lengths.clip(FEWEST_TOKENS, min(MOST_TOKENS, backbone.max_length))
    return [random_row(draw, length, model) for length in lengths.tolist()]


def random_row(draw: np.random.Generator, length: int, model: MultiExitModel) -> Row:
    vocabulary = model.backbone.vocab_size
    lowest = min(FIRST_WORD, vocabulary // 2)  # small vocabularies have special tokens, too, and fewer
    types = [0] * length if model.backbone.config.type_vocab_size > 1 else None
    return Row(draw.integers(lowest, vocabulary, length).tolist(), types)


def scripted_exits(rows: int, depth: int, seed: int = 0) -> Policy:
    """Rows leave after 5 of 12 layers, give or take 3 (normal), or the same share of another depth; at least 1."""
    draw = np.random.default_rng(seed + 1)
    layers = np.rint(draw.normal(5 * depth / 12, 3 * depth / 12, rows)).clip(1, depth)
    return Scripted(tuple(layers.astype(int).tolist()))


def cut(rows: Sequence[tuple[int, Row]], size: int) -> list[list[tuple[int, Row]]]:
    """Batches of so many rows, in their order; the last may be smaller."""
    return [list(rows[start : start + size]) for start in range(0, len(rows), size)]


def by_length(rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    return sorted(rows, key=lambda numbered: len(numbered[1]))
