"""`offramp.load`: open a model folder, a Hugging Face encoder or a checkpoint of the original programs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.initialization import no_init_weights

from offramp.errors import OfframpError, one_line
from offramp.interop import deebert, ebert, elasticbert, elbert, huggingface, own
from offramp.interop.checkpoint import CONFIG, Checkpoint, read_checkpoint
from offramp.interop.dialect import Dialect, Model, Translation, Wishes, log
from offramp.interop.vocabulary import check_vocabulary
from offramp.models import MultiExitForQuestionAnswering
from offramp.models.loading import refuse_nan

DIALECTS: tuple[Dialect, ...] = (own, deebert, ebert, elasticbert, elbert, huggingface)
"""Tried in this order: our own, those known by the names of their weights, and last what config.json says it is."""

EXIT_OPTIONS = frozenset(
    {"exit_layers", "poolers", "classifiers", "pooling", "pooler_size", "classifier_size", "exit_dropout"}
)
"""What can be chosen for exits that a checkpoint does not bring."""


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
        path_or_name: an offramp folder; a model in the box (`offramp-mini`); a Hugging Face BERT, RoBERTa, ALBERT or
            ElasticBERT (local folder or hub name); a checkpoint folder of the original DeeBERT, RomeBERT, ElasticBERT,
            ELBERT or EBERT; Google's TF ALBERT; or what `read_checkpoint` made of one of these.
        layers: keep only the first so many layers (ElasticBERT's static usage).
        exits: "all", "last", or the layers (1-based) whose exits to keep.
        num_labels: of new classifiers; 1 means regression. Default: the checkpoint's own, or 2 if it has none.
        span: answer with spans (question answering) rather than labels.
        legacy_last_exit: keep DeeBERT's untrained last highway as one more exit, as the original program does.
        revision: branch, tag or commit on the hub.
        exit_options: other settings of `MultiExitConfig` for new exits, such as `pooling="mean"` or `classifiers=1`.
            An encoder that says what it was trained to be read by (models in the box, sentence-transformers) has that
            pooling unless another is named here; others have the first token.

    Weights that were saved in half precision (fp16, bf16) are opened in single: `model.bfloat16()` goes back.

    >>> model = offramp.load("bert-base-uncased", num_labels=3)
    >>> model = offramp.load("fnlp/elasticbert-base", layers=6, exits="last")
    """
    if unknown := sorted(exit_options.keys() - EXIT_OPTIONS):
        raise OfframpError(
            f"there is no option {unknown[0]!r}: for new exits there are {', '.join(sorted(EXIT_OPTIONS))}"
        )
    checkpoint = path_or_name if isinstance(path_or_name, Checkpoint) else read_checkpoint(path_or_name, revision)
    wishes = Wishes(num_labels, span, legacy_last_exit, exit_options, layers)
    with _blaming(checkpoint.folder / CONFIG):
        translation = translate(checkpoint, wishes)
    translation.config.keep(layers, exits)
    check_vocabulary(checkpoint.folder, translation.config.vocab_size)
    return build(checkpoint, translation, whole=layers is None and exits is None)


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """Read a checkpoint in the dialect it is written in."""
    dialect = find_dialect(checkpoint)
    if wishes.legacy_last_exit and dialect is not deebert:
        raise OfframpError(f"{checkpoint.folder}: only DeeBERT's checkpoints have a legacy last exit")
    return with_new_classifiers(dialect.translate(checkpoint, wishes), wishes)


def find_dialect(checkpoint: Checkpoint) -> Dialect:
    """The first that knows it."""
    for dialect in DIALECTS:
        if dialect.recognises(checkpoint):
            return dialect
    raise OfframpError(
        f"{checkpoint.folder}: neither config.json nor the names of the weights tell what model this is; "
        'add "model_type" (bert, roberta, albert or elasticbert) to config.json'
    )


def with_new_classifiers(translation: Translation, wishes: Wishes) -> Translation:
    """Classifiers start anew for another number of labels, or spans, than the checkpoint was trained for."""
    config = translation.config
    other_task = wishes.span and translation.model_class is not MultiExitForQuestionAnswering
    if not other_task and wishes.num_labels in (None, config.num_labels):
        return translation
    if wishes.num_labels is not None:
        config.num_labels = wishes.num_labels
    return replace(
        translation,
        model_class=MultiExitForQuestionAnswering if other_task else translation.model_class,
        new_classifiers=True,
    )


@contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Whatever a file's content makes fail is a mistake in that file: say so in one line."""
    try:
        yield
    except OfframpError as error:
        if str(error).startswith((f"{path.parent}/", f"{path.parent}:")):
            raise
        raise OfframpError(f"{path}: {error}") from error
    except Exception as error:
        raise OfframpError(
            f"{path}: no model can be built from this ({type(error).__name__}: {one_line(error)})"
        ) from error


def build(checkpoint: Checkpoint, translation: Translation, whole: bool = True) -> Model:
    """Make the model and fill in the checkpoint's weights; every weight must be accounted for."""
    with _blaming(checkpoint.folder / CONFIG), no_init_weights():  # all are filled in below; drawing them takes seconds
        model = translation.model_class(translation.config)
    model.to(dtype=_precision(checkpoint))  # type: ignore[call-arg]
    known = {name: translation.source(name) for name in model.state_dict()}
    new = "exits.classifiers." if translation.new_classifiers else None
    sources = {name: None if new and name.startswith(new) else source for name, source in known.items()}
    for name, target in model.state_dict().items():
        source = sources[name]
        if source is None:
            new_weight(target, model.config.initializer_range)
        else:
            target.copy_(_fitting(checkpoint, source, target))
    refuse_nan(model, checkpoint.weights)
    model.name_or_path = str(checkpoint.folder)  # where its tokenizer lies
    model.stored_policy = None if translation.new_classifiers else translation.policy
    if new_exits := set(_new_exits(model, sources)):
        log.warning(NEW, ", ".join(str(model.exits.layers[exit]) for exit in sorted(new_exits)))
    model.config.untrained_exits = sorted(new_exits | set(model.config.untrained_exits))
    if whole:
        _report_unused(checkpoint, translation.ignored, set(known.values()))
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


def _precision(checkpoint: Checkpoint) -> torch.dtype:
    """As it was saved, but never in half: that saves space in a file, and costs exactness in training and answers."""
    saved = next((t.dtype for t in checkpoint.tensors.values() if t.is_floating_point()), torch.float32)
    return torch.promote_types(saved, torch.float32)


NEW = "the exits after layers %s are new: train them before use"


@contextmanager
def saying_only(wanted: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Of our warnings these alone."""
    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


def expecting_new_exits() -> AbstractContextManager[None]:
    """Before training it goes without saying that exits are new."""
    return saying_only(lambda record: record.msg != NEW)


def _new_exits(model: Model, sources: dict[str, str | None]) -> Iterator[int]:
    """The exits (0-based) that must be trained before they can answer."""
    new = {name.rpartition(".")[0] for name, source in sources.items() if source is None}
    poolers = model.exits.pooler_of or (None,) * len(model.exits)
    for exit, (pooler, classifier) in enumerate(zip(poolers, model.exits.classifier_of, strict=True)):
        heads = (f"exits.classifiers.{classifier}", f"exits.poolers.{pooler}")
        if any(part == head or part.startswith(f"{head}.") for part in new for head in heads):
            yield exit


def _report_unused(checkpoint: Checkpoint, ignored: str, used: set[str | None]) -> None:
    """Say what was not understood."""
    strange = sorted(name for name in checkpoint.tensors if name not in used and not re.match(ignored, name))
    if strange:
        log.warning("%s: %d weights not used, such as %s", checkpoint.weights, len(strange), strange[0])
