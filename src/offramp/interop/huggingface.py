"""Hugging Face checkpoints: an encoder alone, with its pre-training heads, or fine-tuned with one head on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offramp.backbones.base import REGISTRY
from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, Checkpoint, read_json
from offramp.interop.dialect import (
    Translation,
    Wishes,
    backbone_config,
    encoder_prefix,
    label_options,
    pooler_of_each,
    rows,
    source_of,
)
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification
from offramp.models.config import SEVERAL_LABELS

FIRST, EXIT_POOLING = "first", "exit_pooling"
"""The usual pooling, and where config.json of our encoders names another."""
SENTENCE_POOLING = Path("1_Pooling") / "config.json"
"""Where models of sentence-transformers do."""
SENTENCE_MODES = {
    "pooling_mode_cls_token": FIRST,
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}

UNUSED = r"cls\.|lm_head\.|predictions\.|sop_classifier\.|classifier\.|qa_outputs\.|.*position_ids$|.*token_type_ids$"


def recognises(checkpoint: Checkpoint) -> bool:
    return "model_type" in checkpoint.config


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """Poolers start from the pre-trained one; a fine-tuned head becomes the last exit, other classifiers are new."""
    family = checkpoint.config["model_type"]
    if family not in REGISTRY:
        known = ", ".join(sorted(REGISTRY))
        raise OfframpError(f"{checkpoint.folder / CONFIG}: model_type {family!r} is not supported; use one of {known}")
    backbone = REGISTRY[family]
    encoder = backbone_config(checkpoint, backbone)
    depth, prefix = encoder.num_hidden_layers, encoder_prefix(checkpoint, backbone)
    layers = wishes.layers or depth
    if "exit_layers" in wishes.exit_options and 1 <= layers < depth:
        encoder = backbone.truncated(encoder, layers)
    span = wishes.span or _made_for(checkpoint, "QuestionAnswering")

    several = not span and checkpoint.config.get("problem_type") == SEVERAL_LABELS
    if several and wishes.num_labels is None:
        raise OfframpError(
            f"{checkpoint.folder / CONFIG}: it gives several labels to one text ({SEVERAL_LABELS}), which is not "
            "supported; with num_labels its encoder is loaded, to be trained for another task"
        )

    pooler = _pooler(checkpoint, prefix + backbone.pretrained_pooler(depth))
    head = None if several else head_of(checkpoint, span)
    outputs = rows(checkpoint, f"{head}.weight") if head else wishes.num_labels or 2
    options: dict[str, Any] = {"poolers": 0} if span else {"pooling": usual_pooling(checkpoint, head)}
    labels = {"num_labels": outputs} if several else label_options(checkpoint, outputs)
    config = MultiExitConfig(backbone_config=encoder, **(options | wishes.exit_options), **labels)
    last = config.classifiers[-1]
    return Translation(
        config,
        source_of(
            prefix,
            pooler_of_each(config, lambda layer: pooler),
            [head if number == last else None for number in range(config.num_exits)],
        ),
        ignored=UNUSED + rf"|{prefix}pooler\.",
        model_class=MultiExitForQuestionAnswering if span else MultiExitForSequenceClassification,
    )


def usual_pooling(checkpoint: Checkpoint, head: str | None) -> str:
    """What an encoder was trained to be read by, where it says so; a fine-tuned head reads the first token."""
    if head is not None:
        return FIRST
    if EXIT_POOLING in checkpoint.config:
        return str(checkpoint.config[EXIT_POOLING])
    path = checkpoint.folder / SENTENCE_POOLING
    if not path.is_file():
        return FIRST
    modes = {name: pooling for name, pooling in SENTENCE_MODES.items() if read_json(path).get(name) is True}
    return next(iter(modes.values())) if len(modes) == 1 else FIRST


def _made_for(checkpoint: Checkpoint, task: str) -> bool:
    return any(name.endswith(f"For{task}") for name in checkpoint.config.get("architectures") or [])


def _pooler(checkpoint: Checkpoint, pretrained: str) -> str | None:
    """RoBERTa's classification head begins with what is a pooler elsewhere; it is fine-tuned, so it comes first."""
    candidates = ("classifier.dense", pretrained)
    return next((name for name in candidates if f"{name}.weight" in checkpoint.tensors), None)


def head_of(checkpoint: Checkpoint, span: bool = False) -> str | None:
    """The linear layer that a fine-tuned model answers with; None where there is none."""
    if span:
        candidates: tuple[str, ...] = ("qa_outputs",)
    elif checkpoint.config.get("architectures") and not _made_for(checkpoint, "SequenceClassification"):
        candidates = ()
    else:
        candidates = ("classifier.out_proj", "classifier")
    return next((name for name in candidates if f"{name}.weight" in checkpoint.tensors), None)
