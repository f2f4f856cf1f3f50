"""Our own model folders."""

from __future__ import annotations

from offramp.interop.checkpoint import Checkpoint
from offramp.interop.dialect import Translation, Wishes, refuse_exit_options
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("model_type") == MultiExitConfig.model_type


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    refuse_exit_options(checkpoint, wishes)
    config = MultiExitConfig.from_dict(checkpoint.config)
    span = MultiExitForQuestionAnswering.__name__ in (config.architectures or [])
    model_class = MultiExitForQuestionAnswering if span else MultiExitForSequenceClassification
    return Translation(config, source=lambda name: name, model_class=model_class)
