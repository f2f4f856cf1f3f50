"""ElasticBERT checkpoints: the released pre-trained ones, and fine-tuned static (one exit) and dynamic (all exits)."""

from __future__ import annotations

import re

from offramp.backbones import ElasticBertBackbone
from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, Checkpoint
from offramp.interop.dialect import (
    Translation,
    Wishes,
    backbone_config,
    encoder_prefix,
    label_options,
    only_number,
    pooler_of_each,
    refuse_exit_options,
    rows,
    source_of,
)
from offramp.interop.huggingface import usual_pooling
from offramp.models import MultiExitConfig
from offramp.policies import Entropy, Patience, Policy

UNUSED = r"predictions\.|sop_classifier\.|.*position_ids$"


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("model_type") == "elasticbert" or checkpoint.has(
        r"(elasticbert\.)?encoder\.pooler\.\d"
    )


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """The last `num_output_layers` layers have an exit; pooler i belongs to layer i + 1."""
    encoder = backbone_config(checkpoint, ElasticBertBackbone)
    depth, exits = encoder.num_hidden_layers, encoder.num_output_layers
    if not 1 <= exits <= depth:
        raise OfframpError(
            f"{checkpoint.folder / CONFIG}: num_output_layers is {exits}, but num_hidden_layers is {depth}: "
            "more exits than layers"
        )
    prefix = encoder_prefix(checkpoint, ElasticBertBackbone)
    if "exit_layers" in wishes.exit_options and wishes.layers and 1 <= wishes.layers < depth:
        encoder, depth = ElasticBertBackbone.truncated(encoder, wishes.layers), wishes.layers  # static usage
        exits = encoder.num_output_layers
    layers: list[int] = list(range(depth - exits + 1, depth + 1))
    trained: list[str | None]
    if checkpoint.has(re.escape("classifiers.")):
        trained = [f"classifiers.{i}" for i in range(exits)]
    elif checkpoint.has(re.escape("classifier.")):
        trained = ["classifier"]
    else:
        trained = [None] * exits
    if trained[0] is not None:
        refuse_exit_options(checkpoint, wishes)
    outputs = rows(checkpoint, f"{trained[0]}.weight") if trained[0] else wishes.num_labels or 2
    options = {"exit_layers": layers, "exit_dropout": encoder.hidden_dropout_prob}
    options |= {"pooling": usual_pooling(checkpoint, trained[0])} | wishes.exit_options
    config = MultiExitConfig(backbone_config=encoder, **options, **label_options(checkpoint, outputs))
    has_poolers = checkpoint.has(re.escape(f"{prefix}encoder.pooler."))  # else pre-trained without sentence order
    poolers = pooler_of_each(
        config, lambda layer: prefix + ElasticBertBackbone.pretrained_pooler(layer) if has_poolers else None
    )
    policy = stored_policy(checkpoint, config) if trained[0] is not None and config.num_exits > 1 else None
    source = source_of(prefix, poolers, trained + [None] * config.num_exits)
    return Translation(config, source, ignored=UNUSED, policy=policy)


def stored_policy(checkpoint: Checkpoint, config: MultiExitConfig) -> Policy | None:
    """By patience or entropy, whichever its program was told."""
    regression = config.num_labels == 1
    if patience := only_number(checkpoint, "patience"):
        tolerance = only_number(checkpoint, "regression_threshold") or 0.0
        return Patience(int(patience), tolerance) if regression else Patience(int(patience))
    threshold = None if regression else only_number(checkpoint, "early_exit_entropy")
    return Entropy(threshold) if threshold is not None and threshold > 0 else None
