"""ELBERT: an ALBERT whose exits share its pooler, and one classifier for all layers or for each group of them.

Two kinds of folder: what its program trained, and what its README starts from, a converted ALBERT whose `config.json`
holds the settings of the exits beside the encoder's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp.backbones import AlbertBackbone
from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, Checkpoint
from offramp.interop.dialect import (
    ENCODER,
    Translation,
    Wishes,
    backbone_config,
    encoder_prefix,
    label_options,
    log,
    refuse_exit_options,
    rows,
    split_exit_name,
)
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification
from offramp.policies import Entropy, Policy, RuledOut, Window

POOLING = {"cls": "first"}
HEAD = "albert.encoder.exit_out_layer"
UNUSED = r".*position_ids$|predictions\.|sop_classifier\."
SIGNS = ("exit_config_path", "num_exit_layers", "thres_name")
"""Settings of ELBERT's config.json that no other program has."""
RULES = {"bias_1": "same_side", "bias_2": "trend", "bias_3": "stable"}


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.has(HEAD) or is_config(checkpoint.config)


def is_config(config: Mapping[str, Any]) -> bool:
    """Whether a config.json is ELBERT's, which may lack a `model_type`."""
    return config.get("model_type", "albert") == "albert" and any(sign in config for sign in SIGNS)


def settings_of(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json` and the file that its `exit_config_path` names, where that can be found and is not blank."""
    named = config.get("exit_config_path")
    path = folder / str(named)  # an absolute path stays as it is
    if not named or not path.is_file() or path.name == CONFIG:
        return dict(config)
    text = path.read_text(encoding="utf-8").strip()
    try:
        more = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise OfframpError(
            f"{path} is not valid JSON ({error}); {folder / CONFIG} names it as exit_config_path"
        ) from error
    return {**config, **more} if isinstance(more, dict) else dict(config)


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    settings = settings_of(checkpoint.folder, checkpoint.config)
    encoder = backbone_config(checkpoint, AlbertBackbone)
    trained = checkpoint.has(HEAD)
    if trained:
        refuse_exit_options(checkpoint, wishes)
    cut = "exit_layers" in wishes.exit_options and wishes.layers is not None
    if cut and 1 <= (wishes.layers or 0) < encoder.num_hidden_layers:
        encoder = AlbertBackbone.truncated(encoder, wishes.layers or 0)
    heads = int(settings.get("num_exit_layers", 1))
    if encoder.num_hidden_layers % heads:
        raise OfframpError(
            f"{checkpoint.folder / CONFIG}: num_exit_layers {heads} does not divide {encoder.num_hidden_layers} layers"
        )
    own_poolers = not settings.get("use_out_pooler", True)
    span = wishes.span and not trained  # a trained head is replaced afterwards
    options = {"poolers": 0} if span else exit_options(settings, heads, own_poolers)
    names = [HEAD] if heads == 1 else [f"{HEAD}s.{k}" for k in range(heads)]
    two_layers = trained and f"{names[0]}.classifier2.weight" in checkpoint.tensors
    output = f"{names[0]}.{'classifier2' if two_layers else 'classifier'}.weight"
    outputs = rows(checkpoint, output) if trained else wishes.num_labels or settings.get("_num_labels") or 2
    config = MultiExitConfig(
        backbone_config=encoder, **(options | wishes.exit_options), **label_options(checkpoint, int(outputs))
    )
    prefix = encoder_prefix(checkpoint, AlbertBackbone)
    parts = {"hidden.": "classifier1.", "output.": "classifier2."}

    def source(name: str) -> str | None:
        if name.startswith(ENCODER):
            return prefix + name.removeprefix(ENCODER)
        kind, number, which = split_exit_name(name)
        if kind == "poolers" and not own_poolers:
            fits = trained or (
                config.pooler_size == config.hidden_size and f"{prefix}pooler.weight" in checkpoint.tensors
            )
            return f"{prefix}pooler.{which}" if fits else None
        if not trained:
            return None
        part, _, weight = which.rpartition(".")
        return f"{names[number]}.{'pooler.' if kind == 'poolers' else parts.get(f'{part}.', 'classifier.')}{weight}"

    return Translation(
        config,
        source,
        ignored=UNUSED + r"|(albert\.)?pooler\.",
        model_class=MultiExitForQuestionAnswering if span else MultiExitForSequenceClassification,
        policy=None if wishes.span else policy_of(settings, config),
    )


def exit_options(settings: Mapping[str, Any], heads: int, own_poolers: bool) -> dict[str, Any]:
    """Its settings as ours."""
    pooling = [POOLING.get(part, part) for part in settings.get("pooler_input", "cls").split("-")]
    return {
        "poolers": heads if own_poolers else 1,
        "classifiers": heads,
        "pooling": "+".join(pooling),
        "pool_padding": pooling != ["first"],
        "pooler_size": int(settings["fc_size1"]) if own_poolers else None,
        "classifier_size": int(settings["fc_size2"]) if settings.get("use_fc2") else None,
        "exit_dropout": settings.get("classifier_dropout_prob"),
    }


def policy_of(settings: Mapping[str, Any], config: MultiExitConfig) -> Policy | None:
    """The rule that `thres_name`, `exit_thres`, `cnt_thres`, `margin` and `range_tmp` describe.

    None for numbers, which the original cannot leave early with. With more than two labels the window looks at the
    first one's probability, as the original does.
    """
    rule, labels = settings.get("thres_name"), int(config.num_labels or 0)
    if rule is None or "exit_thres" not in settings or labels == 1:
        return None
    threshold = float(settings["exit_thres"])
    if rule == "logits":
        return RuledOut(threshold)
    certain = Entropy(threshold, normalised=True)
    if rule == "entropy":
        return certain
    if rule not in RULES:
        raise OfframpError(f"thres_name {rule!r}: expected one of {', '.join((*RULES, 'entropy', 'logits'))}")
    if rule == "bias_3" and "range_tmp" not in settings:
        log.warning("thres_name is bias_3, but range_tmp is missing: ELBERT's exit settings are left out")
        return None
    more = {"range": float(settings["range_tmp"])} if "range_tmp" in settings else {}
    size, margin = int(settings.get("cnt_thres", 8)), float(settings.get("margin", 0.0))
    return certain | Window(size, RULES[rule], margin, published=labels > 2, **more)
