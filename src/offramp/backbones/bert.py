"""BERT."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn
from transformers import BertConfig, BertModel, PreTrainedConfig

from offramp.backbones.base import Backbone


class BertBackbone(Backbone):
    """BERT and everything that shares its architecture (MiniLM, TinyBERT, SciBERT …)."""

    family = "bert"
    config_class: ClassVar[type[PreTrainedConfig]] = BertConfig
    prefix = "bert."

    @staticmethod
    def build(config: Any) -> nn.Module:
        return BertModel(config, add_pooling_layer=False)

    @staticmethod
    def pretrained_pooler(layer: int) -> str:
        return "pooler.dense"

    def layer_module(self, index: int) -> nn.Module:
        module: nn.Module = self.model.encoder.layer[index]
        return module
