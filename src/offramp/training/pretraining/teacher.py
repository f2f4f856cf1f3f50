"""A teacher: an encoder that knows more, whose states every exit learns to give from words that are masked."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from offramp.backbones import Backbone
from offramp.errors import OfframpError
from offramp.interop.checkpoint import read_checkpoint
from offramp.training.pretraining.corpus import read_vocabulary
from offramp.training.pretraining.encoder import open_encoder
from offramp.training.pretraining.heads import word_embeddings
from offramp.training.pretraining.rows import Rows


class Teacher(nn.Module):
    """Gives the last states of an encoder for rows as they were before they were masked. It does not change."""

    def __init__(self, backbone: Backbone, ids: Tensor) -> None:
        super().__init__()
        self.backbone = backbone.eval().requires_grad_(False)
        self.ids: Tensor
        self.register_buffer("ids", ids)
        """(V,) the teacher's number of each of our words."""

    @property
    def width(self) -> int:
        return self.backbone.hidden_size

    @torch.no_grad()
    def forward(self, rows: Rows) -> Tensor:
        """(B, T, H), each dimension with mean 0 and variance 1 over all tokens: no dimension drowns the others."""
        whole = rows.ids.scatter(1, rows.positions, rows.targets)
        hidden = self.backbone.embed(self.ids[whole])
        for layer in range(self.backbone.depth):
            hidden = self.backbone.layer(layer, hidden, None)
        return standardised(hidden)

    def compile_parts(self) -> None:
        for index in range(self.backbone.depth):
            self.backbone.layer_module(index).compile(dynamic=False)


def standardised(hidden: Tensor) -> Tensor:
    values = hidden.float()
    variance, mean = torch.var_mean(values, dim=(0, 1), correction=0)
    return ((values - mean) * torch.rsqrt(variance + 1e-6)).to(hidden.dtype)


class ImitationHead(nn.Module):
    """What an exit would say if it were the teacher: a linear map of its states."""

    def __init__(self, hidden: int, teacher: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, teacher)

    def forward(self, hidden: Tensor, target: Tensor) -> Tensor:
        """The share of the teacher's variance that is missed: 1 for an exit that knows nothing, 0 for the teacher."""
        return F.mse_loss(self.dense(hidden).float(), target.float())


def read_teacher(source: str, tokenizer: PreTrainedTokenizerBase) -> Teacher:
    """The encoder in a folder or hub name, as a teacher for a vocabulary whose words it knows."""
    checkpoint = read_checkpoint(source)
    words = read_vocabulary(checkpoint.folder).get_vocab()
    return Teacher(open_encoder(checkpoint), teacher_ids(source, words, tokenizer))


def teacher_ids(source: str, words: Mapping[str, int], tokenizer: PreTrainedTokenizerBase) -> Tensor:
    own = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    if strange := [word for word, _ in own if word not in words]:
        raise OfframpError(
            f"the teacher {source} does not know {len(strange):,} of {len(own):,} words ({strange[0]!r}, …): "
            f"take its vocabulary (--vocabulary {source}), cut if you like (--vocabulary-size)"
        )
    return torch.tensor([words[word] for word, _ in own])


@torch.no_grad()
def take_words(backbone: Backbone, teacher: Teacher) -> None:
    """Start from the teacher's word embeddings, in as many of their main directions as the backbone has room for.

    Each direction keeps its weight; all of them together are scaled to what new embeddings would be.
    """
    own = word_embeddings(backbone)
    known = word_embeddings(teacher.backbone)[teacher.ids].float()
    known = known - known.mean(0)
    _, _, directions = torch.linalg.svd(known, full_matrices=False)
    kept = known @ directions[: own.shape[1]].T
    mixing = torch.linalg.qr(torch.randn(kept.shape[1], kept.shape[1]))[0]  # no dimension more than another
    kept = kept @ mixing * (backbone.config.initializer_range / kept.std())
    own[: len(kept), : kept.shape[1]] = kept
