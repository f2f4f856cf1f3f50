"""What every exit is asked while a backbone is pre-trained: which word stood here, and which half came first."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import ACT2FN

from offramp.backbones import Backbone
from offramp.training.pretraining.rows import IGNORED


class WordHead(nn.Module):
    """The masked-LM head of one exit: a transform of its own; words and their bias are shared by all exits."""

    def __init__(self, hidden: int, width: int, activation: str, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, width)
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(width, eps=epsilon)

    def forward(self, hidden: Tensor, words: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        """Masked places (M, H) and what stood there (M,) to their mean cross-entropy."""
        return F.cross_entropy(self.logits(hidden, words, bias).float(), targets)

    def logits(self, hidden: Tensor, words: Tensor, bias: Tensor) -> Tensor:
        return F.linear(self.norm(self.activation(self.dense(hidden))), words, bias)  # (M, V)


class OrderHead(nn.Module):
    """Sentence order from the first token: a pooler, as fine-tuning wants one, and two classes."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(hidden, hidden)
        self.classifier = nn.Linear(hidden, 2)

    def forward(self, first: Tensor, order: Tensor, asked: Tensor) -> Tensor:
        """First tokens (B, H) to the cross-entropy of the order, summed and divided by the number of rows asked."""
        logits = self.classifier(torch.tanh(self.pooler(first)))
        return F.cross_entropy(logits.float(), order, ignore_index=IGNORED, reduction="sum") / asked


class AlikeHead(nn.Module):
    """How alike two texts are, from the mean of their tokens, as a classifier would be put on it."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.pooler = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor, mask: Tensor, alike: Tensor) -> Tensor:
        """States (B, T, H) of padded pairs to the mean squared error: 1 for an exit that knows nothing."""
        kept = mask.to(hidden.dtype)[..., None]
        mean = (hidden * kept).sum(1) / kept.sum(1)
        return F.mse_loss(self.score(torch.tanh(self.pooler(mean)))[:, 0].float(), alike.float())


class PretrainingHeads(nn.Module):
    """A masked-LM head, and where it is wanted an order head, after every layer."""

    def __init__(self, backbone: Backbone, order: bool) -> None:
        super().__init__()
        config, words = backbone.config, word_embeddings(backbone)
        width = words.shape[1]
        self.words = nn.ModuleList(
            WordHead(backbone.hidden_size, width, config.hidden_act, config.layer_norm_eps)
            for _ in range(backbone.depth)
        )
        self.bias = nn.Parameter(torch.zeros(words.shape[0]))
        self.order = nn.ModuleList(OrderHead(backbone.hidden_size) for _ in range(backbone.depth if order else 0))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)
                nn.init.zeros_(module.bias)


def word_embeddings(backbone: Backbone) -> nn.Parameter:
    weight: nn.Parameter = backbone.model.get_input_embeddings().weight
    return weight


class HeadNames(NamedTuple):
    """How a family calls its masked-LM head. `{layer}` (0-based) where there is one for each layer."""

    dense: str
    norm: str
    bias: str
    pooler: str


HEAD_NAMES = {
    "bert": HeadNames(
        "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias", "pooler.dense"
    ),
    "roberta": HeadNames("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "pooler.dense"),
    "albert": HeadNames("predictions.dense", "predictions.LayerNorm", "predictions.bias", "pooler"),
    "elasticbert": HeadNames(
        "predictions.transforms.{layer}.dense",
        "predictions.transforms.{layer}.LayerNorm",
        "predictions.bias",
        "encoder.pooler.{layer}.dense",
    ),
}
