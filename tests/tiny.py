"""Models small enough to make in a moment, with weights wild enough that exits disagree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlbertConfig, BertConfig, PreTrainedConfig, RobertaConfig

from offramp.backbones import ElasticBertConfig
from offramp.models import (
    GateSettings,
    MultiExitConfig,
    MultiExitForQuestionAnswering,
    MultiExitForSequenceClassification,
)

FAMILIES = ("bert", "roberta", "albert", "elasticbert")
VOCABULARY = 50
GATES = GateSettings(sparsity=0.4)
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
}


def tiny_backbone(family: str, layers: int = 4) -> PreTrainedConfig:
    """Configuration of a small backbone of each family."""
    shape = {**SHAPE, "num_hidden_layers": layers}
    if family == "roberta":
        return RobertaConfig(**{**shape, "type_vocab_size": 1})
    if family == "albert":
        return AlbertConfig(**shape, embedding_size=8)
    if family == "elasticbert":
        return ElasticBertConfig(**shape, num_output_layers=layers, max_output_layers=layers, layer_norm_eps=1e-8)
    return BertConfig(**shape)


def tiny_model(
    family: str = "bert", layers: int = 4, num_labels: int = 3, span: bool = False, **options: Any
) -> MultiExitForSequenceClassification | MultiExitForQuestionAnswering:
    """A model in evaluation mode whose exits say different things, some with confidence."""
    config = MultiExitConfig(backbone_config=tiny_backbone(family, layers), num_labels=num_labels, **options)
    model = MultiExitForQuestionAnswering(config) if span else MultiExitForSequenceClassification(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.8 if "classifiers" in name else 0.4)
    return model.eval()


def tiny_gated_model(family: str = "bert", settings: GateSettings = GATES, seed: int = 0, **options: Any) -> Any:
    """The same with gates that differ from row to row."""
    torch.manual_seed(seed)
    model = tiny_model(family, **options)
    model.add_gates(settings)
    model.gates.draw(1.0)
    with torch.no_grad():
        for name, parameter in model.gates.named_parameters():
            if name.endswith("3.bias"):
                parameter.normal_()
    return model.eval()


def without_dropout(model: nn.Module) -> Any:
    """The same model with every dropout off, whatever its mode."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def tiny_batch(rows: int = 6, tokens: int = 12, labels: int | None = None, seed: int = 0) -> dict[str, Tensor]:
    """Rows of different lengths, padded on the right; labels of so many classes, or real numbers for 1, where asked."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, tokens + 1, (rows,), generator=draw)
    lengths[0] = tokens
    mask = (torch.arange(tokens) < lengths[:, None]).long()
    ids = torch.randint(4, VOCABULARY, (rows, tokens), generator=draw)
    batch = {"input_ids": torch.where(mask.bool(), ids, 1), "attention_mask": mask}
    if labels == 1:
        batch["labels"] = torch.randn(rows, generator=draw)
    elif labels is not None:
        batch["labels"] = torch.randint(0, labels, (rows,), generator=draw)
    return batch


def span_batch(rows: int = 6, tokens: int = 12) -> dict[str, Tensor]:
    batch = tiny_batch(rows, tokens)
    start = torch.zeros(rows, dtype=torch.long)
    return batch | {"start_positions": start, "end_positions": batch["attention_mask"].sum(1) - 1}


def rows_of(batch: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """Some rows of a batch, in the given order, without the padding that only the others needed."""
    picked = {name: tensor[rows] for name, tensor in batch.items()}
    longest = int(picked["attention_mask"].sum(1).max())
    return {name: t[:, :longest] if t.ndim == 2 else t for name, t in picked.items()}
