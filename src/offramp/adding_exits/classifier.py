"""Opening a fine-tuned Hugging Face classifier with new exits, and refusing what is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from offramp.errors import OfframpError
from offramp.interop import huggingface, load, own
from offramp.interop.checkpoint import CONFIG, Checkpoint, read_checkpoint, read_json
from offramp.interop.loading import expecting_new_exits, find_dialect
from offramp.models import MultiExitModel
from offramp.models.config import SEVERAL_LABELS
from offramp.recipes.plain import Plain
from offramp.shipped import resolve
from offramp.tasks.encoding import TextEncoder, text_encoder
from offramp.tasks.trained import RECORD, recipe_name

OTHERS = {
    "TokenClassification": "labels each token of a text",
    "QuestionAnswering": "answers questions with a part of a text",
    "MultipleChoice": "chooses one of several texts",
}
POOLING = "mean"
"""What the new exits see: nobody taught the lower layers of a fine-tuned model to gather all in the first token."""
WANTED = "add-exits takes one that labels whole texts (…ForSequenceClassification)"


def open_classifier(name: str | Path, exit_layers: Sequence[int] | None = None) -> MultiExitModel:
    """The model with new exits below its own head, which is the last and sees what it always saw: the first token."""
    checkpoint = read_checkpoint(resolve(name))
    refuse_no_classifier(checkpoint, str(name))
    depth = int(checkpoint.config["num_hidden_layers"])
    if depth < 2:
        raise OfframpError(f"{name} has one layer: there is nothing below its classifier to leave from")
    layers = sorted({*(exit_layers or range(1, depth)), depth})
    if layers == [depth]:
        raise OfframpError(
            f"--exit-layers {depth}: after the last layer {name} has its own classifier; name some below, "
            f"1 to {depth - 1}"
        )
    with expecting_new_exits():
        model = load(checkpoint, exit_layers=layers, pooling=[*[POOLING] * (len(layers) - 1), "first"])
    if depth in model.config.untrained_layers:
        raise OfframpError(f"{name} lacks the pooler below its classifier: save the whole model, as transformers does")
    start_from_last(model)
    return model


def refuse_no_classifier(checkpoint: Checkpoint, name: str) -> None:
    """Say what else a model is, and what can be done with that."""
    config, kind = checkpoint.config, (checkpoint.config.get("architectures") or ["model"])[0]
    dialect = find_dialect(checkpoint)
    if dialect is own:
        if is_plain(name):
            raise OfframpError(
                f"{name} has exits already, and only its last one was trained: offramp train --backbone {name} "
                "--recipe frozen … teaches the others"
            )
        raise OfframpError(f"{name} has exits already: offramp calibrate {name} --max-loss 0.01 makes a policy for it")
    if dialect is not huggingface:
        raise OfframpError(f"{name} has exits already: offramp convert {name} OUT makes an offramp model of it")
    for ending, does in OTHERS.items():
        if kind.endswith(f"For{ending}"):
            raise OfframpError(f"{name} is a {kind}, which {does}: {WANTED}")
    if config.get("problem_type") == SEVERAL_LABELS:
        raise OfframpError(
            f"{name}/{CONFIG}: a model with several labels for one text ({SEVERAL_LABELS}) cannot have exits "
            "here: add them to one model for each label"
        )
    head = huggingface.head_of(checkpoint)
    if head is None:
        raise OfframpError(
            f"{name} has no classifier (it is a {kind}): fine-tune it first, or train it with exits from the start: "
            f"offramp train --backbone {name} …"
        )
    outputs = len(checkpoint.tensors[f"{head}.weight"])
    if config.get("problem_type") == "regression" and outputs > 1:
        raise OfframpError(f"{name} answers with {outputs} numbers: exits can be added to a model that gives one")


def is_plain(name: str) -> bool:
    """Whether a folder of ours was trained by the recipe `plain`."""
    record = Path(resolve(name)) / RECORD
    return record.is_file() and recipe_name(read_json(record)) == Plain.name


@torch.no_grad()
def start_from_last(model: MultiExitModel) -> None:
    """Every exit begins as the last one is: upper layers are near it, and lower ones have to begin somewhere."""
    exits: Any = model.exits
    for parts, number_of in ((exits.poolers, exits.pooler_of), (exits.classifiers, exits.classifier_of)):
        for number in number_of[:-1]:
            parts[str(number)].load_state_dict(parts[str(number_of[-1])].state_dict())


def whole_text_encoder(model: MultiExitModel, max_length: int | None = None) -> TextEncoder:
    """Texts are cut where the model has to, and no sooner, unless it is asked for: its answers are to stay the same."""
    encoder = text_encoder(model, max_length or model.backbone.max_length)
    if max_length is None and encoder.tokenizer.model_max_length < encoder.max_length:
        encoder = text_encoder(model, int(encoder.tokenizer.model_max_length), encoder.tokenizer)
    model.config.max_text_tokens = encoder.max_length
    return encoder
