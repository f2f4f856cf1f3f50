"""ELBERT checkpoints: an ALBERT whose exits share its pooler, and one classifier for all layers or for each group."""

from __future__ import annotations

from typing import Any

from offramp.backbones import AlbertBackbone
from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, Checkpoint
from offramp.interop.dialect import (
    Translation,
    Wishes,
    backbone_config,
    label_options,
    refuse_exit_options,
    rows,
    source_of,
)
from offramp.models import MultiExitConfig

POOLING = {"cls": "first"}
HEAD = "albert.encoder.exit_out_layer"


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.has(HEAD)


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    refuse_exit_options(checkpoint, wishes)
    settings = checkpoint.config
    if settings.get("use_fc2"):
        raise OfframpError(
            f"{checkpoint.folder / CONFIG}: use_fc2 asks for a two-layer classifier, which offramp does not have; "
            "train with use_fc2 false"
        )
    encoder = backbone_config(checkpoint, AlbertBackbone)
    depth, heads = encoder.num_hidden_layers, int(settings.get("num_exit_layers", 1))
    if depth % heads:
        raise OfframpError(f"{checkpoint.folder / CONFIG}: num_exit_layers {heads} does not divide {depth} layers")
    names = [HEAD] if heads == 1 else [f"{HEAD}s.{k}" for k in range(heads)]
    own_poolers = not settings.get("use_out_pooler", True)
    pooling = [POOLING.get(part, part) for part in settings.get("pooler_input", "cls").split("-")]
    options: dict[str, Any] = {
        "poolers": heads if own_poolers else 1,
        "classifiers": heads,
        "pooling": "+".join(pooling),
        "pool_padding": pooling != ["first"],
        "pooler_size": int(settings["fc_size1"]) if own_poolers else None,
        "exit_dropout": settings.get("classifier_dropout_prob"),
    }
    config = MultiExitConfig(
        backbone_config=encoder,
        **options,
        **label_options(checkpoint, rows(checkpoint, f"{names[0]}.classifier.weight")),
    )
    poolers = [f"{name}.pooler" for name in names] if own_poolers else ["albert.pooler"]
    classifiers = [f"{name}.classifier" for name in names]
    unused = r".*position_ids$" + (r"|albert\.pooler\." if own_poolers else "")
    return Translation(config, source_of(AlbertBackbone.prefix, poolers, classifiers), ignored=unused)
