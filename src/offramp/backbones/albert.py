"""ALBERT."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, PreTrainedConfig

from offramp.backbones.base import Backbone
from offramp.backbones.parts import LayerParts
from offramp.errors import OfframpError


class AlbertBackbone(Backbone):
    """ALBERT: one layer applied `depth` times (or a few groups of such layers)."""

    family = "albert"
    config_class = AlbertConfig
    prefix = "albert."

    @staticmethod
    def build(config: Any) -> nn.Module:
        return AlbertModel(config, add_pooling_layer=False)

    @staticmethod
    def pretrained_pooler(layer: int) -> str:
        return "pooler"

    @classmethod
    def truncated(cls, config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
        # A layer's group follows from its share of the depth, so cutting must keep that share.
        per_group, rest = divmod(config.num_hidden_layers, config.num_hidden_groups)
        if config.num_hidden_groups > 1 and (rest or layers % per_group):
            raise OfframpError(
                f"an ALBERT of {config.num_hidden_groups} layer groups can be cut only between groups: "
                f"{layers} layers is not a multiple of {per_group}"
            )
        groups = layers // per_group if config.num_hidden_groups > 1 else 1
        cut = super().truncated(config, layers)
        cut.num_hidden_groups = groups
        return cut

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.model.encoder.embedding_hidden_mapping_in(super().embed(input_ids, token_type_ids))
        return hidden

    def layer_module(self, index: int) -> nn.Module:
        group = int(index / (self.depth / self.config.num_hidden_groups))  # rounded as Hugging Face does
        module: nn.Module = self.model.encoder.albert_layer_groups[group]
        return module

    def parts(self, index: int) -> LayerParts:
        group: Any = self.layer_module(index)
        if len(group.albert_layers) > 1:
            raise OfframpError(
                f"this ALBERT has {len(group.albert_layers)} layers in a group (inner_group_num): gates work on one"
            )
        layer = group.albert_layers[0]
        attention = layer.attention
        return LayerParts(
            query=attention.query,
            key=attention.key,
            value=attention.value,
            attended=attention.dense,
            attended_norm=attention.LayerNorm,
            neurons=layer.ffn,
            activation=layer.activation,
            summed=layer.ffn_output,
            summed_norm=layer.full_layer_layer_norm,
            head_width=attention.attention_head_size,
            attention_dropout=attention.attention_dropout.p,
            hidden_dropout=attention.output_dropout.p,
            summed_dropout=0.0,
        )
