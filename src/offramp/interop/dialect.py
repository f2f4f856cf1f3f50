"""A dialect is how one program names and lays out a checkpoint; a translation says what that is in our terms."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from transformers import PreTrainedConfig

from offramp.backbones import Backbone
from offramp.backbones.base import REGISTRY
from offramp.errors import OfframpError
from offramp.interop.checkpoint import Checkpoint
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification
from offramp.models.config import check_sizes
from offramp.policies import Policy

log = logging.getLogger("offramp")

Model = MultiExitForSequenceClassification | MultiExitForQuestionAnswering

ENCODER = "backbone.model."
"""What our names of the encoder's weights start with; what follows is Hugging Face's own name."""


@dataclass(frozen=True)
class Wishes:
    """What the caller asks for where a checkpoint leaves it open."""

    num_labels: int | None = None
    span: bool = False
    legacy_last_exit: bool = False
    exit_options: dict[str, Any] = field(default_factory=dict)
    """Settings of `MultiExitConfig`, for exits that the checkpoint does not have yet."""
    layers: int | None = None
    """Of the backbone, where it is to be cut: new exits are among these."""


@dataclass(frozen=True)
class Translation:
    """How to build a model from a checkpoint."""

    config: MultiExitConfig
    source: Callable[[str], str | None]
    """Given our name of a weight, the checkpoint's; None if the weight is new and starts from scratch."""
    ignored: str = r"$^"
    """Pattern of the checkpoint's names that are knowingly left behind."""
    model_class: type[Model] = MultiExitForSequenceClassification
    new_classifiers: bool = False
    """Whether classifiers start from scratch, and the checkpoint's are knowingly left behind."""
    policy: Policy | None = None
    """The rule and threshold that the checkpoint's own program would leave by, where it says."""


class Dialect(Protocol):
    """A module of this package that reads one program's checkpoints."""

    def recognises(self, checkpoint: Checkpoint) -> bool: ...

    def translate(self, checkpoint: Checkpoint, wishes: Wishes) -> Translation: ...


def family_by_prefix(checkpoint: Checkpoint) -> type[Backbone]:
    """The backbone of a checkpoint whose config.json does not say: the names of its weights do."""
    for backbone in REGISTRY.values():
        if f"{backbone.prefix}embeddings.word_embeddings.weight" in checkpoint.tensors:
            return backbone
    raise OfframpError(f"{checkpoint.weights}: no known encoder in it (looked for {', '.join(sorted(REGISTRY))})")


def encoder_prefix(checkpoint: Checkpoint, backbone: type[Backbone]) -> str:
    """`bert.` or the like where the encoder lies beside a head, nothing where it was saved alone."""
    return backbone.prefix if checkpoint.has(re.escape(backbone.prefix)) else ""


def backbone_config(checkpoint: Checkpoint, backbone: type[Backbone]) -> PreTrainedConfig:
    """The encoder's part of a config.json that may hold much else."""
    known = {f.name for f in dataclasses.fields(backbone.config_class)} - {"id2label", "label2id", "architectures"}
    settings = {
        key: value for key, value in checkpoint.config.items() if key in known and key != "transformers_version"
    }
    check_sizes(settings)
    return backbone.config_class(**settings)


def label_options(checkpoint: Checkpoint, outputs: int) -> dict[str, Any]:
    """Label names from config.json where they fit the classifier, else just their number."""
    names = checkpoint.config.get("id2label") or {}
    if len(names) != outputs:
        return {"num_labels": outputs}
    id2label = {int(number): str(name) for number, name in names.items()}
    return {"id2label": id2label, "label2id": {name: number for number, name in id2label.items()}}


def rows(checkpoint: Checkpoint, name: str) -> int:
    """Number of outputs of a linear layer in the checkpoint."""
    if name not in checkpoint.tensors:
        raise OfframpError(f"{checkpoint.weights}: weight {name} is missing")
    return int(checkpoint.tensors[name].shape[0])


def only_number(checkpoint: Checkpoint, argument: str) -> float | None:
    """A threshold that the original program was told, from config.json or its stored arguments.

    Its scripts name several at once (`0.3,0.4,0.5`) to try one after another: which is meant then nobody knows.
    """
    stored = checkpoint.config.get(argument, checkpoint.arguments.get(argument))
    if stored is None or isinstance(stored, bool):
        return None
    numbers = [part.strip() for part in str(stored).split(",")]
    if len(numbers) > 1:
        log.warning("%s: %s names several (%s): choose one with --policy", checkpoint.folder, argument, stored)
        return None
    try:
        return float(numbers[0])
    except ValueError:
        return None


def refuse_exit_options(checkpoint: Checkpoint, wishes: Wishes) -> None:
    """Exits that are trained are what they are."""
    if wishes.exit_options:
        raise OfframpError(
            f"{checkpoint.folder}: its exits are trained, {next(iter(wishes.exit_options))} cannot be chosen"
        )


def pooler_of_each(config: MultiExitConfig, pretrained: Callable[[int], str | None]) -> list[str | None]:
    """What each new pooler starts from: the pre-trained one of its last exit's layer, if it is as wide."""
    if config.pooler_size != config.hidden_size:
        return [None] * config.num_exits
    layer_of = dict(zip(config.poolers, config.exit_layers, strict=False))
    return [pretrained(layer_of[number]) if number in layer_of else None for number in range(config.num_exits)]


def split_exit_name(name: str) -> tuple[str, int, str]:
    """`exits.poolers.3.weight` to (`poolers`, 3, `weight`); of a two-layer classifier the last is `hidden.weight`."""
    _, kind, number, which = name.split(".", 3)
    return kind, int(number), which


def source_of(
    prefix: str, poolers: Sequence[str | None], classifiers: Sequence[str | None]
) -> Callable[[str], str | None]:
    """Names for the usual layout: an encoder under a prefix, and a linear layer for each pooler and classifier."""

    def source(name: str) -> str | None:
        if name.startswith(ENCODER):
            return prefix + name.removeprefix(ENCODER)
        kind, number, which = split_exit_name(name)
        linear = (poolers if kind == "poolers" else classifiers)[number]
        return None if linear is None else f"{linear}.{which}"

    return source
