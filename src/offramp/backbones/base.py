"""What every backbone looks like to the rest of offramp: embed, then layer after layer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask

from offramp.backbones.parts import LayerParts
from offramp.errors import OfframpError

REGISTRY: dict[str, type[Backbone]] = {}


class Backbone(nn.Module, ABC):
    """A Hugging Face encoder seen as `embed`, then `layer(0) … layer(depth - 1)`.

    The wrapped module (`self.model`) stays as Hugging Face wrote it, so its weights keep their names and its attention
    implementations (eager, SDPA, FlashAttention) keep working.
    """

    family: ClassVar[str]
    """`model_type` of the Hugging Face configuration this adapter takes."""
    config_class: ClassVar[type[PreTrainedConfig]]
    prefix: ClassVar[str]
    """Name of the encoder inside a checkpoint that also holds a head: `bert.` and the like."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "family" in cls.__dict__:
            REGISTRY[cls.family] = cls

    config: Any
    model: Any

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config
        self.model = self.build(config)

    @staticmethod
    @abstractmethod
    def build(config: Any) -> nn.Module:
        """The Hugging Face module, without a pooler: poolers belong to the exits."""

    @staticmethod
    @abstractmethod
    def pretrained_pooler(layer: int) -> str:
        """Name inside the encoder of the pre-trained pooler that an exit after `layer` (1-based) starts from."""

    @classmethod
    def truncated(cls, config: PreTrainedConfig, layers: int) -> PreTrainedConfig:
        """The configuration of the same backbone cut after its first `layers` layers."""
        return type(config)(**{**config.to_dict(), "num_hidden_layers": layers})

    @property
    def depth(self) -> int:
        return int(self.config.num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        return int(self.config.hidden_size)

    @property
    def vocab_size(self) -> int:
        return int(self.config.vocab_size)

    @property
    def max_length(self) -> int:
        """The longest input, in tokens, that has position embeddings."""
        return int(self.config.max_position_embeddings)

    def embed(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Token ids (B, T) to the first layer's input (B, T, H)."""
        hidden: Tensor = self.model.embeddings(input_ids=input_ids, token_type_ids=token_type_ids)
        return hidden

    def mask(self, attention_mask: Tensor, hidden: Tensor) -> Any:
        """The 1/0 mask (B, T) in the form the configured attention wants; None where nothing is padded."""
        return create_bidirectional_mask(config=self.config, inputs_embeds=hidden, attention_mask=attention_mask)

    def layer(self, index: int, hidden: Tensor, mask: Any) -> Tensor:
        """Run layer `index` (0-based): (B, T, H) to (B, T, H)."""
        output: Tensor | tuple[Tensor, ...] = self.layer_module(index)(hidden, mask)
        return output if isinstance(output, torch.Tensor) else output[0]

    @abstractmethod
    def layer_module(self, index: int) -> nn.Module:
        """The module that computes layer `index` (0-based); the same one more than once where layers share weights."""

    @abstractmethod
    def parts(self, index: int) -> LayerParts:
        """The pieces of layer `index` (0-based), for what runs inside a layer: gates, and layers that skip."""

    def matrices_below_last_layer(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Weight matrices (no biases, no norms) of every layer but the last; of all layers where they are one."""
        below = {id(p) for index in range(self.depth - 1) for p in self.layer_module(index).parameters()}
        for name, parameter in self.named_parameters():
            if id(parameter) in below and parameter.ndim == 2:
                yield name, parameter


def backbone_class(config: PreTrainedConfig) -> type[Backbone]:
    """The adapter for a Hugging Face configuration."""
    if config.model_type not in REGISTRY:
        raise OfframpError(f"backbone {config.model_type!r} is not supported; use one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[config.model_type]
