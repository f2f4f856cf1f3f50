"""`offramp.load`: open a model folder, a Hugging Face encoder or a checkpoint of the original programs."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers.initialization import no_init_weights

from offramp.errors import OfframpError
from offramp.interop import deebert, elasticbert, elbert, huggingface, own
from offramp.interop.checkpoint import CONFIG, Checkpoint, read_checkpoint
from offramp.interop.dialect import Dialect, Model, Translation, Wishes
from offramp.interop.vocabulary import check_vocabulary
from offramp.models.loading import refuse_nan

log = logging.getLogger("offramp")

DIALECTS: tuple[Dialect, ...] = (own, deebert, elasticbert, elbert, huggingface)
"""Tried in this order: those that are known by the names of their weights before those known by config.json alone."""


def load(
    path_or_name: str | Path | Checkpoint,
    *,
    layers: int | None = None,
    exits: Sequence[int] | str | None = None,
    num_labels: int | None = None,
    span: bool = False,
    legacy_last_exit: bool = False,
    revision: str | None = None,
    **exit_options: Any,
) -> Model:
    """Open a multi-exit model, ready to answer or to be trained.

    Args:
        path_or_name: an offramp folder; a Hugging Face BERT, RoBERTa, ALBERT or ElasticBERT (local folder or hub name);
            a checkpoint folder of the original DeeBERT, RomeBERT, ElasticBERT or ELBERT; Google's TF ALBERT; or what
            `read_checkpoint` made of one of these.
        layers: keep only the first so many layers (ElasticBERT's static usage).
        exits: "all", "last", or the layers (1-based) whose exits to keep.
        num_labels: for exits that have to be made new; 1 means regression. Default 2.
        span: answer with spans (question answering) rather than labels.
        legacy_last_exit: keep DeeBERT's untrained last highway as one more exit, as the original program does.
        revision: branch, tag or commit on the hub.
        exit_options: other settings of `MultiExitConfig` for new exits, such as `pooling="mean"` or `classifiers=1`.

    >>> model = offramp.load("bert-base-uncased", num_labels=3)
    >>> model = offramp.load("fnlp/elasticbert-base", layers=6, exits="last")
    """
    checkpoint = path_or_name if isinstance(path_or_name, Checkpoint) else read_checkpoint(path_or_name, revision)
    wishes = Wishes(num_labels, span, legacy_last_exit, exit_options)
    translation = translate(checkpoint, wishes)
    translation.config.keep(layers, exits)
    check_vocabulary(checkpoint.folder, translation.config.vocab_size)
    return build(checkpoint, translation)


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """Find the dialect a checkpoint is written in, and read it."""
    if checkpoint.has(r".*\.intermediate\.predictor\."):
        raise OfframpError(f"{checkpoint.folder}: an EBERT checkpoint; offramp cannot open its gates yet")
    for dialect in DIALECTS:
        if dialect.recognises(checkpoint):
            return _translate(dialect, checkpoint, wishes)
    raise OfframpError(
        f"{checkpoint.folder}: neither config.json nor the names of the weights tell what model this is; "
        'add "model_type" (bert, roberta, albert or elasticbert) to config.json'
    )


def _translate(dialect: Dialect, checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """What the configuration classes refuse is a mistake in config.json: say so."""
    try:
        return dialect.translate(checkpoint, wishes)
    except (ValueError, TypeError) as error:
        if str(checkpoint.folder) in str(error):
            raise
        raise OfframpError(f"{checkpoint.folder / CONFIG}: {' '.join(str(error).split())[:200]}") from error


def build(checkpoint: Checkpoint, translation: Translation) -> Model:
    """Make the model and fill in the checkpoint's weights; every weight must be accounted for."""
    with no_init_weights():  # every weight is filled in below; drawing them first takes seconds on a large model
        model = translation.model_class(translation.config)
    sources = {name: translation.source(name) for name in model.state_dict()}
    for name, target in model.state_dict().items():
        source = sources[name]
        if source is None:
            new_weight(target, model.config.initializer_range)
        else:
            target.copy_(_fitting(checkpoint, source, target))
    refuse_nan(model, checkpoint.weights)
    _report(checkpoint, translation, model, sources)
    model.eval()
    return model


def new_weight(weight: Tensor, spread: float) -> None:
    """A weight that no checkpoint brings: matrices are drawn as in BERT, biases start at 0."""
    if weight.ndim >= 2:
        weight.normal_(std=spread)
    else:
        weight.zero_()


def _fitting(checkpoint: Checkpoint, source: str, target: Tensor) -> Tensor:
    if source not in checkpoint.tensors:
        raise OfframpError(f"{checkpoint.weights}: weight {source} is missing, which config.json calls for")
    tensor = checkpoint.tensors[source]
    if tensor.shape != target.shape:
        raise OfframpError(
            f"{checkpoint.weights}: weight {source} has shape {tuple(tensor.shape)}, "
            f"but config.json calls for {tuple(target.shape)}"
        )
    return tensor


def _report(checkpoint: Checkpoint, translation: Translation, model: Model, sources: dict[str, str | None]) -> None:
    """Say what is new and must be trained, and what was not understood."""
    new = {k for k in sources if k.startswith("exits.classifiers.") and sources[k] is None}
    layers = [
        layer
        for layer, number in zip(model.exits.layers, model.exits.classifier_of, strict=True)
        if f"exits.classifiers.{number}.weight" in new
    ]
    if layers:
        log.warning("the exits after layers %s are new: train them before use", ", ".join(map(str, layers)))
    used = set(sources.values())
    cut = rf".*encoder\.(layer|pooler|highway)\.|classifiers?\.|{translation.ignored}"
    strange = sorted(name for name in checkpoint.tensors if name not in used and not re.match(cut, name))
    if strange:
        log.warning("%s: %d weights not used, such as %s", checkpoint.weights, len(strange), strange[0])
