"""Pre-trained encoders, seen as `embed` and then one layer after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import PreTrainedConfig

from offramp.backbones.albert import AlbertBackbone
from offramp.backbones.base import Backbone, backbone_class
from offramp.backbones.bert import BertBackbone
from offramp.backbones.elasticbert import ElasticBertBackbone, ElasticBertConfig
from offramp.backbones.roberta import RobertaBackbone

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "AlbertBackbone",
    "Backbone",
    "BertBackbone",
    "ElasticBertBackbone",
    "ElasticBertConfig",
    "RobertaBackbone",
    "backbone_class",
    "from_config",
    "from_pretrained",
]


def from_config(config: PreTrainedConfig) -> Backbone:
    """A backbone with fresh weights."""
    return backbone_class(config)(config)


def from_pretrained(path_or_name: str | Path, layers: int | None = None) -> Backbone:
    """A backbone with the weights of a local folder or a hub name, cut after the first `layers` layers if given."""
    from offramp.interop import load

    return load(path_or_name, layers=layers, exits="last").backbone
