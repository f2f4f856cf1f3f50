"""A model's weights as the graphs use them: on the device, in one precision, query, key and value in one matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import activations

from offramp.backbones import Backbone
from offramp.backbones.parts import LayerParts
from offramp.models.exits import Exits

Activation = str | Callable[[Tensor], Tensor]
"""One of those the kernels know, or any other."""

NAMES: tuple[tuple[type, str], ...] = (
    (activations.GELUActivation, "gelu"),
    (activations.NewGELUActivation, "gelu_tanh"),
    (activations.GELUTanh, "gelu_tanh"),
    (nn.ReLU, "relu"),
    (nn.Tanh, "tanh"),
)


@dataclass(frozen=True)
class Where:
    """Where weights go."""

    device: torch.device
    dtype: torch.dtype

    def put(self, *tensors: Tensor) -> Tensor:
        """One tensor, or several as one along the first dimension."""
        moved = [tensor.detach().to(self.device, self.dtype) for tensor in tensors]
        return (torch.cat(moved) if len(moved) > 1 else moved[0]).contiguous()


@dataclass(frozen=True)
class Linear:
    weight: Tensor  # (N, K)
    bias: Tensor  # (N,)

    @classmethod
    def of(cls, where: Where, *modules: nn.Linear) -> Linear:
        bias = [torch.zeros(m.out_features) if m.bias is None else m.bias for m in modules]
        return cls(where.put(*(m.weight for m in modules)), where.put(*bias))


@dataclass(frozen=True)
class Norm:
    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, where: Where, module: nn.LayerNorm) -> Norm:
        return cls(where.put(module.weight), where.put(module.bias), module.eps)


@dataclass(frozen=True)
class LayerWeights:
    qkv: Linear
    attended: Linear
    attended_norm: Norm
    neurons: Linear
    activation: Activation
    summed: Linear
    summed_norm: Norm
    heads: int
    head_width: int

    @classmethod
    def of(cls, where: Where, parts: LayerParts) -> LayerWeights:
        return cls(
            qkv=Linear.of(where, parts.query, parts.key, parts.value),
            attended=Linear.of(where, parts.attended),
            attended_norm=Norm.of(where, parts.attended_norm),
            neurons=Linear.of(where, parts.neurons),
            activation=next((name for kind, name in NAMES if type(parts.activation) is kind), parts.activation),
            summed=Linear.of(where, parts.summed),
            summed_norm=Norm.of(where, parts.summed_norm),
            heads=parts.heads,
            head_width=parts.head_width,
        )


@dataclass(frozen=True)
class EmbeddingWeights:
    words: Tensor
    types: Tensor
    positions: Tensor
    norm: Norm
    mapping: Linear | None
    """ALBERT's, from the width of its embeddings to that of its layers."""
    pad: int | None
    """RoBERTa's: positions are numbered from `pad + 1`, and this token stays at `pad`."""

    @classmethod
    def of(cls, where: Where, backbone: Backbone) -> EmbeddingWeights:
        module: Any = backbone.model.embeddings
        mapping = getattr(backbone.model.encoder, "embedding_hidden_mapping_in", None)
        return cls(
            words=where.put(module.word_embeddings.weight),
            types=where.put(module.token_type_embeddings.weight),
            positions=where.put(module.position_embeddings.weight),
            norm=Norm.of(where, module.LayerNorm),
            mapping=None if mapping is None else Linear.of(where, mapping),
            pad=getattr(module, "padding_idx", None),
        )


@dataclass(frozen=True)
class HeadWeights:
    pooler: Linear | None
    classifier: Linear

    @classmethod
    def all_of(cls, where: Where, exits: Exits) -> list[HeadWeights]:
        """One for each exit; those that share weights share them here."""
        poolers = {name: Linear.of(where, module) for name, module in exits.poolers.items()}  # type: ignore[arg-type]
        classifiers = {name: Linear.of(where, module) for name, module in exits.classifiers.items()}  # type: ignore[arg-type]
        return [
            cls(poolers[str(exits.pooler_of[i])] if exits.pooler_of else None, classifiers[str(exits.classifier_of[i])])
            for i in range(len(exits))
        ]


@dataclass(frozen=True)
class Weights:
    embedding: EmbeddingWeights
    layers: list[LayerWeights]
    heads: list[HeadWeights]

    @classmethod
    def of(cls, where: Where, backbone: Backbone, exits: Exits) -> Weights:
        shared: dict[int, LayerWeights] = {}  # by the module that computes the layer: ALBERT has one for all
        for index in range(backbone.depth):
            module = id(backbone.layer_module(index))
            if module not in shared:
                shared[module] = LayerWeights.of(where, backbone.parts(index))
        layers = [shared[id(backbone.layer_module(index))] for index in range(backbone.depth)]
        return cls(EmbeddingWeights.of(where, backbone), layers, HeadWeights.all_of(where, exits))

    def products(self) -> Iterator[Linear]:
        """What is multiplied with every token."""
        for layer in self.layers:
            yield from (layer.qkv, layer.attended, layer.neurons, layer.summed)
        if self.embedding.mapping is not None:
            yield self.embedding.mapping
