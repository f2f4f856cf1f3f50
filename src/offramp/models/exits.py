"""Exits: the small heads that can answer after a layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from offramp.models.config import MultiExitConfig
from offramp.models.pooling import first_real_token, mean_over


class TwoLayers(nn.Module):
    """ELBERT's optional classifier (`use_fc2`): a hidden layer with tanh, then the linear classifier."""

    def __init__(self, width: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, pooled: Tensor) -> Tensor:
        logits: Tensor = self.output(torch.tanh(self.hidden(pooled)))
        return logits


class Exits(nn.Module):
    """Every exit of a model: pooling, then (where there is one) a tanh pooler, dropout and a classifier.

        z_i = W_c(i) · dropout(tanh(W_p(i) · pool(h_i) + b_p(i))) + b_c(i)

    p(i) and c(i) say which pooler and classifier exit i uses, so that exits can have their own or share them. With
    `classifier_size` the classifier has a hidden layer of that width (`TwoLayers`).
    For spans there is no pooling: pooler and classifier see each token.
    """

    def __init__(self, config: MultiExitConfig, outputs: int, each_token: bool) -> None:
        super().__init__()
        self.layers = tuple(config.exit_layers)
        self.pooler_of = tuple(config.poolers)
        self.classifier_of = tuple(config.classifiers)
        self.pooling_of = tuple(tuple(pooling.split("+")) for pooling in config.poolings)
        self.pool_padding = config.pool_padding
        self.each_token = each_token
        hidden, width = config.hidden_size, config.pooler_size
        self.poolers = nn.ModuleDict({str(k): nn.Linear(hidden, width) for k in sorted(set(self.pooler_of))})
        between = config.classifier_size
        self.classifiers = nn.ModuleDict(
            {
                str(k): nn.Linear(width, outputs) if between is None else TwoLayers(width, between, outputs)
                for k in sorted(set(self.classifier_of))
            }
        )
        self.dropout = nn.Dropout(config.exit_dropout)

    def __len__(self) -> int:
        return len(self.layers)

    def forward(self, exit: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of exit `exit` (0-based) from its layer's output: (B, T, H) to (B, C), or (B, T, C) by token."""
        logits = self.head(exit, hidden if self.each_token else self.pool(exit, hidden, attention_mask))
        if self.each_token and not self.pool_padding:
            # Padding can be no answer, and must not change the probabilities of what can.
            logits = logits.masked_fill(attention_mask.unsqueeze(-1) == 0, torch.finfo(logits.dtype).min)
        return logits

    def head(self, exit: int, pooled: Tensor) -> Tensor:
        """Logits of exit `exit` (0-based) from what it looks at: (B, H) to (B, C), or (B, T, H) to (B, T, C)."""
        if self.pooler_of:
            pooled = torch.tanh(self.poolers[str(self.pooler_of[exit])](pooled))
        logits: Tensor = self.classifiers[str(self.classifier_of[exit])](self.dropout(pooled))
        return logits

    def pool(self, exit: int, hidden: Tensor, attention_mask: Tensor) -> Tensor:
        """What exit `exit` (0-based) looks at, one vector for each sample: (B, T, H) to (B, H)."""
        seen = torch.ones_like(attention_mask) if self.pool_padding else attention_mask
        pooled = torch.zeros_like(hidden[:, 0])
        for kind in self.pooling_of[exit]:
            if kind == "first":
                pooled = pooled + first_real_token(hidden, attention_mask)
            elif kind == "mean":
                pooled = pooled + mean_over(hidden, seen)
            else:
                pooled = pooled + hidden.masked_fill(seen.unsqueeze(-1) == 0, -torch.inf).amax(1)
        return pooled

    def parameters_of(self, exit: int) -> set[nn.Parameter]:
        """What exit number `exit` (0-based) is made of."""
        own = set(self.classifiers[str(self.classifier_of[exit])].parameters())
        if self.pooler_of:
            own |= set(self.poolers[str(self.pooler_of[exit])].parameters())
        return own
