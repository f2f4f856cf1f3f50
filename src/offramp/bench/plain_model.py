"""The full-depth answer of a model as Hugging Face computes it, with the same weights."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from transformers import (
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    RobertaForSequenceClassification,
)

from offramp.models import MultiExitModel

CLASSES: dict[str, Any] = {
    "bert": BertForSequenceClassification,
    "elasticbert": BertForSequenceClassification,
    "roberta": RobertaForSequenceClassification,
    "albert": AlbertForSequenceClassification,
}


def plain_model(model: MultiExitModel) -> nn.Module:
    """Inputs by name to the logits of the last exit.

    Hugging Face's classifier where the last exit is built as that is: a tanh pooler on the first token. For other exits
    (spans, means over tokens), its encoder and the exit itself.
    """
    exits: Any = model.exits
    as_wide = exits.pooler_of and model.config.pooler_size == model.config.hidden_size
    two_layers = model.config.classifier_size is not None
    if model.objective.name == "span" or not as_wide or exits.pooling_of[-1] != ("first",) or two_layers:
        return EncoderAndExit(model).eval()
    return Logits(classifier_of(model)).eval()


class Logits(nn.Module):
    """A classifier of Hugging Face's, and of what it gives the logits."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, **inputs: Tensor) -> Tensor:
        logits: Tensor = self.classifier(**inputs).logits
        return logits


class EncoderAndExit(nn.Module):
    """Hugging Face's encoder with one of our exits on top."""

    def __init__(self, model: MultiExitModel) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(model.backbone.model)
        self.exits = copy.deepcopy(model.exits)

    def forward(self, attention_mask: Tensor, **inputs: Tensor) -> Tensor:
        hidden = self.encoder(attention_mask=attention_mask, **inputs).last_hidden_state
        logits: Tensor = self.exits(len(self.exits) - 1, hidden, attention_mask)
        return logits


def classifier_of(model: MultiExitModel) -> Any:
    """Hugging Face's classifier with the backbone's weights and those of the last exit."""
    config, exits = copy.deepcopy(model.backbone.config), model.exits
    family = model.backbone.family
    if family == "elasticbert":  # BERT by another name
        config = BertConfig(**{**config.to_dict(), "model_type": "bert"})
    config.num_labels = model.outputs
    classifier = CLASSES[family](config)
    pooler: Any = exits.poolers[str(exits.pooler_of[-1])]
    head: Any = exits.classifiers[str(exits.classifier_of[-1])]
    if family == "roberta":
        encoder, (to_pooler, to_head) = (
            classifier.roberta,
            (classifier.classifier.dense, classifier.classifier.out_proj),
        )
    else:
        encoder = classifier.albert if family == "albert" else classifier.bert
        to_pooler = encoder.pooler if family == "albert" else encoder.pooler.dense
        to_head = classifier.classifier
    encoder.load_state_dict(model.backbone.model.state_dict(), strict=False)
    for to, given in ((to_pooler, pooler), (to_head, head)):
        to.load_state_dict(given.state_dict())
    return classifier
