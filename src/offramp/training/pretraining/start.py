"""The backbone a pre-training begins with: a new one from a configuration, or an encoder to go on from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedTokenizerBase

from offramp.backbones import Backbone, from_config
from offramp.backbones.base import REGISTRY
from offramp.errors import OfframpError, one_line
from offramp.interop.checkpoint import Checkpoint, read_checkpoint
from offramp.interop.dialect import encoder_prefix
from offramp.training.pretraining.corpus import read_vocabulary
from offramp.training.pretraining.encoder import open_encoder
from offramp.training.pretraining.groups import exit_groups
from offramp.training.pretraining.heads import HEAD_NAMES, word_embeddings
from offramp.training.pretraining.model import PretrainingModel
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.teacher import read_teacher, take_words

log = logging.getLogger("offramp")

DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")


def starting_model(plan: PretrainingPlan, tokenizer: PreTrainedTokenizerBase) -> PretrainingModel:
    """The model of a plan at its first step; new weights follow from the plan's seed."""
    teacher = read_teacher(plan.teacher, tokenizer) if plan.teacher else None
    torch.manual_seed(plan.seed)
    if plan.start is None:
        backbone = from_config(new_config(plan.shape or {}, len(tokenizer), plan, tokenizer.pad_token_id))
        backbone.model.init_weights()
        refuse_family(backbone.family, plan.family)
        if teacher is not None:
            take_words(backbone, teacher)
        return PretrainingModel(backbone, plan, teacher)
    checkpoint = read_checkpoint(plan.start)
    backbone = open_encoder(checkpoint)
    refuse_family(backbone.family, plan.family)
    for name in DROPOUTS:
        setattr(backbone.config, name, plan.dropout)
    places = places_of_words(checkpoint, backbone, tokenizer)
    fresh = with_words(backbone, places, tokenizer.pad_token_id)
    _refuse_long_rows(plan, fresh)
    model = PretrainingModel(fresh, plan, teacher)
    take_heads(model, checkpoint, places)
    return model


def places_of_words(
    checkpoint: Checkpoint, backbone: Backbone, tokenizer: PreTrainedTokenizerBase
) -> torch.Tensor | None:
    """(V,) where the encoder keeps each word of a vocabulary, -1 where it knows it not; None: at the same number."""
    known = read_vocabulary(checkpoint.folder).get_vocab()
    words = [word for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])]
    places = torch.tensor([known.get(word, -1) for word in words])
    places[places >= backbone.vocab_size] = -1
    if places.equal(torch.arange(len(words))):
        return None
    if new := int((places < 0).sum()):
        log.warning("%s: %d of %d words are new to it and begin at random", checkpoint.folder, new, len(words))
    return places


@torch.no_grad()
def with_words(backbone: Backbone, places: torch.Tensor | None, padding: int | None) -> Backbone:
    """The same encoder, with what its config says now, for a vocabulary whose words it keeps at these places."""
    config, before = backbone.config, backbone.state_dict()
    if backbone.family == "roberta" and padding != config.pad_token_id:
        raise OfframpError(
            f"the vocabulary pads with number {padding}, and this RoBERTa counts positions from {config.pad_token_id}: "
            "take its own vocabulary (leave out --vocabulary), cut if you like (--vocabulary-size)"
        )
    config.pad_token_id = padding
    if places is None:
        fresh = from_config(config)
        fresh.load_state_dict(before)
        return fresh
    config.vocab_size = len(places)
    fresh = from_config(config)
    fresh.model.init_weights()
    [words] = [name for name, weight in fresh.named_parameters() if weight is word_embeddings(fresh)]
    fresh.load_state_dict({**before, words: word_embeddings(fresh)})
    take_rows(word_embeddings(fresh), before[words], places)
    return fresh


@torch.no_grad()
def take_rows(into: torch.Tensor, known: torch.Tensor, places: torch.Tensor | None) -> None:
    """One row for each word; of words that are not known, nothing is taken."""
    if places is None:
        into.copy_(known)
    else:
        into[places >= 0] = known[places[places >= 0]].to(into.dtype)


def refuse_family(family: str, written_as: str | None) -> None:
    """A BERT can be written as an ElasticBERT; nothing else can be written as another."""
    if written_as not in (None, family) and (family, written_as) != ("bert", "elasticbert"):
        raise OfframpError(f"a backbone of type {family} cannot be written as {written_as}")


def check_plan(plan: PretrainingPlan) -> None:
    """Refuse what no corpus could make right, before text is read for minutes."""
    if plan.shape is not None:
        exit_groups(new_config(plan.shape, 8, plan).num_hidden_layers, plan.groups)


def new_config(
    shape: Mapping[str, Any], vocabulary: int, plan: PretrainingPlan, padding: int | None = 0
) -> PreTrainedConfig:
    """The configuration of a new backbone, with the vocabulary and the dropout of this run."""
    settings = dict(shape)
    family = settings.pop("model_type", "bert")
    if family not in REGISTRY:
        raise OfframpError(f"a backbone of type {family!r} cannot be built; use one of {', '.join(sorted(REGISTRY))}")
    settings |= {"vocab_size": vocabulary, "pad_token_id": padding, **dict.fromkeys(DROPOUTS, plan.dropout)}
    try:
        config = AutoConfig.for_model(family, **settings)
        backbone = from_config(config)
    except (TypeError, ValueError, AttributeError) as error:
        raise OfframpError(f"no {family} backbone can be built from this shape ({one_line(error)})") from error
    _refuse_long_rows(plan, backbone)
    return config


def _refuse_long_rows(plan: PretrainingPlan, backbone: Backbone) -> None:
    longest = max(plan.length, plan.long_length or 0)
    if longest > backbone.max_length:
        raise OfframpError(f"rows of {longest} tokens are too long: the backbone has {backbone.max_length} positions")


@torch.no_grad()
def take_heads(model: PretrainingModel, checkpoint: Checkpoint, places: torch.Tensor | None) -> None:
    """Every exit's head starts from the masked-LM head and the pooler that the checkpoint brings, if it does."""
    backbone, tensors = model.backbone, checkpoint.tensors
    names = HEAD_NAMES[backbone.family]
    prefix = encoder_prefix(checkpoint, type(backbone))
    if names.bias in tensors:
        take_rows(model.heads.bias, tensors[names.bias], places)
    for layer, head in enumerate(model.heads.words):
        _fill(head.dense, names.dense.format(layer=layer), tensors)
        _fill(head.norm, names.norm.format(layer=layer), tensors)
    for layer, order in enumerate(model.heads.order):
        _fill(order.pooler, prefix + names.pooler.format(layer=layer), tensors)


def _fill(module: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
    if f"{name}.weight" in tensors:
        module.weight.copy_(tensors[f"{name}.weight"])
        module.bias.copy_(tensors[f"{name}.bias"])


def hugging_face_tensors(model: PretrainingModel, family: str) -> dict[str, torch.Tensor]:
    """The weights by the names that Hugging Face's masked-LM classes give them; the last exit's head is the head.

    An ElasticBERT has a head, and a pooler, for every layer.
    """
    backbone, names = model.backbone, HEAD_NAMES[family]
    prefix = REGISTRY[family].prefix
    tensors = {prefix + name: tensor for name, tensor in backbone.model.state_dict().items()}
    tensors[names.bias] = model.heads.bias
    for layer, head in enumerate(model.heads.words):  # a later layer's takes the name of an earlier one's
        tensors |= _named(names.dense.format(layer=layer), head.dense) | _named(
            names.norm.format(layer=layer), head.norm
        )
    for layer, order in enumerate(model.heads.order):
        tensors |= _named(prefix + names.pooler.format(layer=layer), order.pooler)
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


def _named(name: str, module: Any) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
