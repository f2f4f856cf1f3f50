"""BERT."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn
from transformers import BertConfig, BertModel, PreTrainedConfig

from offramp.backbones.base import Backbone
from offramp.backbones.parts import LayerParts


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

    def parts(self, index: int) -> LayerParts:
        layer: Any = self.layer_module(index)
        attention, out = layer.attention.self, layer.attention.output
        return LayerParts(
            query=attention.query,
            key=attention.key,
            value=attention.value,
            attended=out.dense,
            attended_norm=out.LayerNorm,
            neurons=layer.intermediate.dense,
            activation=layer.intermediate.intermediate_act_fn,
            summed=layer.output.dense,
            summed_norm=layer.output.LayerNorm,
            head_width=attention.attention_head_size,
            attention_dropout=attention.dropout.p,
            hidden_dropout=out.dropout.p,
            summed_dropout=layer.output.dropout.p,
        )
