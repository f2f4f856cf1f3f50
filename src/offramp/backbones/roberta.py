"""RoBERTa."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import RobertaConfig, RobertaModel

from offramp.backbones.bert import BertBackbone


class RobertaBackbone(BertBackbone):
    """RoBERTa: BERT's layers, with positions numbered from `pad_token_id + 1`."""

    family = "roberta"
    config_class = RobertaConfig
    prefix = "roberta."

    @staticmethod
    def build(config: Any) -> nn.Module:
        return RobertaModel(config, add_pooling_layer=False)

    @property
    def max_length(self) -> int:
        return int(self.config.max_position_embeddings - self.config.pad_token_id - 1)
