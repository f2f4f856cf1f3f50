"""Our own model folders."""

from __future__ import annotations

from offramp.backbones import backbone_class
from offramp.interop.checkpoint import Checkpoint
from offramp.interop.dialect import Translation, Wishes, refuse_exit_options, split_exit_name
from offramp.models import MultiExitConfig, MultiExitForQuestionAnswering, MultiExitForSequenceClassification


def recognises(checkpoint: Checkpoint) -> bool:
    return checkpoint.config.get("model_type") == MultiExitConfig.model_type


def translate(checkpoint: Checkpoint, wishes: Wishes) -> Translation:
    config = MultiExitConfig.from_dict(checkpoint.config)
    span = MultiExitForQuestionAnswering.__name__ in (config.architectures or [])
    model_class = MultiExitForQuestionAnswering if span else MultiExitForSequenceClassification
    if not wishes.exit_options:
        return Translation(config, source=lambda name: name, model_class=model_class)
    if trained_below_last(config):
        refuse_exit_options(checkpoint, wishes)
    return with_other_exits(config, wishes, model_class)


def trained_below_last(config: MultiExitConfig) -> bool:
    """Whether an exit below the last was trained: such exits are what they are."""
    return not set(range(config.num_exits - 1)) <= set(config.untrained_exits)


def with_other_exits(
    config: MultiExitConfig,
    wishes: Wishes,
    model_class: type[MultiExitForSequenceClassification] | type[MultiExitForQuestionAnswering],
) -> Translation:
    """Exits as they are wished for, on an encoder whose exits were never trained but perhaps the last.

    A trained last exit stays as it is. New poolers start from that of the folder's exit after the same layer, or after
    the last one: where the folder was converted, that is the pre-trained one.
    """
    layers, depth = wishes.layers or config.num_hidden_layers, config.num_hidden_layers
    fields = {name: getattr(config, name) for name in ("pooling", "pool_padding", "pooler_size", "exit_dropout")}
    fields |= {name: getattr(config, name) for name in ("classifier_size", "max_text_tokens", "gates")}
    fields |= {"poolers": 0} if config.poolers == [] else {}
    if isinstance(fields["pooling"], list | tuple):
        fields["pooling"] = fields["pooling"][0]
    cut = 1 <= layers < depth
    encoder = config.backbone_config
    if cut and "exit_layers" in wishes.exit_options:
        encoder = backbone_class(encoder).truncated(encoder, layers)
    keeps_last = config.num_exits - 1 not in config.untrained_exits and not cut
    options = fields | wishes.exit_options
    new = MultiExitConfig(backbone_config=encoder, **options, id2label=config.id2label, label2id=config.label2id)
    if keeps_last and not isinstance(options["pooling"], list | tuple):
        new.pooling = [*[options["pooling"]] * (new.num_exits - 1), config.poolings[-1]]
    old_pooler = dict(zip(config.exit_layers, config.poolers, strict=False))
    layer_of = dict(zip(new.poolers, new.exit_layers, strict=False))

    def source(name: str) -> str | None:
        if not name.startswith("exits."):
            return name
        kind, number, which = split_exit_name(name)
        if kind == "classifiers":
            last = keeps_last and number == new.classifiers[-1] and new.classifier_size == config.classifier_size
            return f"exits.classifiers.{config.classifiers[-1]}.{which}" if last else None
        if not old_pooler or new.pooler_size != config.pooler_size:
            return None
        old = old_pooler.get(layer_of[number], config.poolers[-1])
        return f"exits.poolers.{old}.{which}"

    return Translation(new, source, ignored=r"exits\.|loss_weights$", model_class=model_class)
