"""Checkpoints of EBERT: a fine-tuned BERT or RoBERTa with one head, and two predictors of gates in every layer."""

from __future__ import annotations

from collections.abc import Callable

from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, Checkpoint
from offramp.interop.dialect import (
    Translation,
    Wishes,
    backbone_config,
    family_by_prefix,
    label_options,
    refuse_exit_options,
    rows,
    source_of,
)
from offramp.models import (
    GateSettings,
    MultiExitConfig,
    MultiExitForQuestionAnswering,
    MultiExitForSequenceClassification,
)

COUNTERS = r".*\.(head|ffn)_nopruned_times$|.*position_ids$"
"""How often each unit was kept in the last evaluation; no part of the model."""

PLACES = {"heads": "attention.self", "neurons": "intermediate"}
"""Where the predictors lie in a layer."""


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.has(r".*\.intermediate\.predictor\.")


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    """The one head becomes the only exit, after the last layer."""
    refuse_exit_options(checkpoint, wishes)
    backbone = family_by_prefix(checkpoint)
    encoder = backbone_config(checkpoint, backbone)
    prefix, depth = backbone.prefix, encoder.num_hidden_layers
    pooler, classifier = head_of(checkpoint, prefix)
    span = classifier == "qa_outputs"
    labels = {} if span else label_options(checkpoint, rows(checkpoint, f"{classifier}.weight"))
    config = MultiExitConfig(
        backbone_config=encoder,
        exit_layers=[depth],
        poolers=0 if pooler is None else None,
        gates=gate_settings(checkpoint),
        **labels,
    )
    return Translation(
        config,
        with_gates(source_of(prefix, [pooler], [classifier]), prefix),
        ignored=COUNTERS,
        model_class=MultiExitForQuestionAnswering if span else MultiExitForSequenceClassification,
    )


def head_of(checkpoint: Checkpoint, prefix: str) -> tuple[str | None, str]:
    """Pooler and classifier: BERT's, RoBERTa's two-layer head, or the head of question answering, without a pooler."""
    for pooler, classifier in (
        (f"{prefix}pooler.dense", "classifier"),
        ("classifier.dense", "classifier.out_proj"),
        (None, "qa_outputs"),
    ):
        if f"{classifier}.weight" in checkpoint.tensors:
            return pooler, classifier
    raise OfframpError(f"{checkpoint.weights}: no head in it (looked for classifier and qa_outputs)")


def gate_settings(checkpoint: Checkpoint) -> GateSettings:
    """As config.json says; the released code writes it there only when it trains."""
    settings = checkpoint.config
    try:
        return GateSettings(
            sparsity=float(settings.get("sparsity_target", 0.0)),
            heads=settings.get("head_mask_mode", "gumbel"),
            neurons=settings.get("ffn_mask_mode", "gumbel"),
            first_input="padded_mean",
        )
    except (TypeError, ValueError) as error:
        raise OfframpError(f"{checkpoint.folder / CONFIG}: {error}") from error


def with_gates(source: Callable[[str], str | None], prefix: str) -> Callable[[str], str | None]:
    """Names of the predictors, besides those of encoder and head."""

    def of(name: str) -> str | None:
        if not name.startswith("gates."):
            return source(name)
        _, _, layer, kind, what = name.split(".", 4)
        return None if what == "state" else f"{prefix}encoder.layer.{layer}.{PLACES[kind]}.{what}"

    return of
