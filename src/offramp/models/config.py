"""Configuration of the multi-exit model: a backbone's own configuration and where and how it can be left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import AutoConfig, PreTrainedConfig

from offramp.backbones import backbone_class
from offramp.errors import OfframpError
from offramp.models.gate_settings import GateSettings

POOLINGS = ("first", "mean", "max")
SEVERAL_LABELS = "multi_label_classification"
"""What Hugging Face calls a task in which a text may have several labels."""
MOST = {"num_hidden_layers": 1000, "num_labels": 100_000, "num_hidden_groups": 1000, "inner_group_num": 1000}
"""Beyond these a configuration is damaged: to build it would take all memory there is, and hours."""
SIZES = (
    *MOST,
    "classifier_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""Of which there is at least one."""


class MultiExitConfig(PreTrainedConfig):
    """A backbone and its exits.

    Args:
        backbone_config: configuration (or its dict) of a BERT, RoBERTa, ALBERT or ElasticBERT encoder.
        exit_layers: layer (1-based) of each exit, in the order they are tried; the last is the model's full-depth
            answer. Default: one after every layer.
        poolers: for each exit, the number of the pooler it uses; or how many poolers there are, each serving a run of
            neighbouring exits (1 = one for all, 0 = none: the pooled vector goes straight to the classifier).
            Default: each exit its own.
        classifiers: the same for the linear classifiers.
        pooling: what the pooler sees of a layer's output: `first` token, `mean`, `max`, or a sum such as `first+mean`;
            or a list of these, one for each exit.
        pool_padding: let mean and max run over padding too, as ELBERT's released code does; and let a span's
            probabilities do so, as EBERT's does.
        pooler_size: width of the poolers; default: the backbone's.
        classifier_size: width of a hidden layer in the classifiers (ELBERT's `use_fc2`); default: they have none.
        exit_dropout: dropout before each classifier while training; default: the backbone's own classifier dropout.
        learned_loss_weights: the model carries ELBERT's trained loss weights.
        max_text_tokens: the length that texts were cut to in training.
        window_stride: of questions, the context tokens from window to window in training.
        gates: EBERT's gates on heads and neurons, as the fields of `GateSettings`; default: none.
        untrained_exits: numbers (0-based) of the exits that were never trained, so that nobody takes what they answer
            for an answer; default: none.
    """

    model_type = "offramp"
    sub_configs = {"backbone_config": AutoConfig}
    has_no_defaults_at_init = True
    # What a Trainer's metrics see is the last exit.
    keys_to_ignore_at_inference = ["exit_logits", "hidden_states", "gates"]

    # None (and for poolers and classifiers a number) only until __post_init__ has filled it in.
    backbone_config: Any = None
    exit_layers: Any = None
    poolers: Any = None
    classifiers: Any = None
    pooling: Any = "first"
    pool_padding: bool = False
    pooler_size: Any = None
    classifier_size: Any = None
    exit_dropout: Any = None
    learned_loss_weights: bool = False
    max_text_tokens: Any = None
    window_stride: Any = None
    gates: Any = None
    untrained_exits: Any = None

    def __post_init__(self, **kwargs: Any) -> None:
        check_sizes(kwargs)
        self.backbone_config = as_config(self.backbone_config)
        self.backbone_config.chunk_size_feed_forward = 0  # saves memory, and refuses texts that are no multiple of it
        check_sizes({"num_hidden_layers": self.num_hidden_layers})
        if self.exit_layers is None:
            self.exit_layers = list(range(1, self.num_hidden_layers + 1))
        self.exit_layers = [int(layer) for layer in self.exit_layers]
        self._check_exit_layers()
        self.poolers = spread(self.poolers, len(self.exit_layers), "poolers")
        self.classifiers = spread(self.classifiers, len(self.exit_layers), "classifiers")
        if self.pooler_size is None:
            self.pooler_size = self.hidden_size
        check_sizes({"classifier_size": self.classifier_size})
        self.untrained_exits = sorted(int(exit) for exit in self.untrained_exits or [])
        if self.exit_dropout is None:
            self.exit_dropout = classifier_dropout(self.backbone_config)
        if isinstance(self.gates, GateSettings):
            self.gates = self.gates.to_json()
        super().__post_init__(**kwargs)
        self._check_heads()
        self._check_gates()

    def _check_exit_layers(self) -> None:
        layers, depth = self.exit_layers, self.num_hidden_layers
        if not layers:
            raise OfframpError("a model needs at least one exit: exit_layers is empty")
        if layers != sorted(layers) or layers[0] < 1:
            raise OfframpError(f"exit_layers must be ascending and start at 1 or later, not {layers}")
        if layers[-1] > depth:
            raise OfframpError(
                f"exit after layer {layers[-1]}, but the backbone has {depth} layers: more exits than layers"
            )
        if layers[-1] != depth:
            raise OfframpError(
                f"the last exit is after layer {layers[-1]} of {depth}: add {depth} to exit_layers, or load with "
                f"layers={layers[-1]} so that nothing is computed in vain"
            )

    def _check_heads(self) -> None:
        if self.problem_type == SEVERAL_LABELS:
            raise OfframpError("several labels for one text are not supported: train one model for each label")
        for pooling in self.poolings:
            if any(part not in POOLINGS for part in str(pooling).split("+")):
                raise OfframpError(f"pooling {pooling!r}: use {', '.join(POOLINGS)} or a sum such as 'first+mean'")
        if self.untrained_exits and not 0 <= min(self.untrained_exits) <= max(self.untrained_exits) < self.num_exits:
            raise OfframpError(f"untrained_exits names {self.untrained_exits}, but there are {self.num_exits} exits")
        if len(self.poolings) != self.num_exits:
            raise OfframpError(f"pooling names {len(self.poolings)} exits, but the model has {self.num_exits}")
        if self.poolers == [] and self.pooler_size != self.hidden_size:
            raise OfframpError("pooler_size needs poolers: without them the classifiers see the backbone's width")

    def _check_gates(self) -> None:
        folded = self.gate_settings.folded if self.gate_settings else None
        if folded is not None and len(folded) != self.num_hidden_layers:
            raise OfframpError(f"gates were folded in {len(folded)} layers, but there are {self.num_hidden_layers}")

    @property
    def gate_settings(self) -> GateSettings | None:
        return None if self.gates is None else GateSettings.from_json(self.gates)

    @property
    def num_hidden_layers(self) -> int:
        return int(self.backbone_config.num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        return int(self.backbone_config.hidden_size)

    @property
    def vocab_size(self) -> int:
        return int(self.backbone_config.vocab_size)

    @vocab_size.setter
    def vocab_size(self, size: int) -> None:
        self.backbone_config.vocab_size = size

    @property
    def initializer_range(self) -> float:
        return float(self.backbone_config.initializer_range)

    @property
    def num_exits(self) -> int:
        return len(self.exit_layers)

    @property
    def poolings(self) -> list[Any]:
        """Of each exit, also where one is said for all."""
        return list(self.pooling) if isinstance(self.pooling, list | tuple) else [self.pooling] * self.num_exits

    @property
    def untrained_layers(self) -> list[int]:
        """The layers of the exits that were never trained."""
        return [self.exit_layers[exit] for exit in self.untrained_exits]

    def keep(self, layers: int | None = None, exits: Sequence[int] | str | None = None) -> None:
        """Cut the backbone after `layers` layers and keep the exits at the layers in `exits` (or "all", or "last").

        Poolers and classifiers keep their numbers, so the remaining weights keep their names.
        """
        if layers is not None:
            if not 1 <= layers <= self.num_hidden_layers:
                raise OfframpError(f"cannot keep {layers} layers: the backbone has {self.num_hidden_layers}")
            self.backbone_config = backbone_class(self.backbone_config).truncated(self.backbone_config, layers)
            if self.gates is not None and self.gates.get("folded") is not None:
                self.gates = {**self.gates, "folded": self.gates["folded"][:layers]}
        depth = self.num_hidden_layers
        wanted = _wanted_exits(exits, self.exit_layers, depth)
        kept = [i for i, layer in enumerate(self.exit_layers) if layer in wanted]
        if isinstance(exits, str) and exits == "last":
            kept = kept[-1:]
        # Learned loss weights are for one set of exits, and add up to their number.
        self.learned_loss_weights = self.learned_loss_weights and len(kept) == self.num_exits
        if not isinstance(self.pooling, str):
            self.pooling = [self.pooling[i] for i in kept]
        self.exit_layers = [self.exit_layers[i] for i in kept]
        self.untrained_exits = [new for new, old in enumerate(kept) if old in self.untrained_exits]
        self.poolers = [self.poolers[i] for i in kept] if self.poolers else []
        self.classifiers = [self.classifiers[i] for i in kept]
        self._check_exit_layers()


def _wanted_exits(exits: Sequence[int] | str | None, available: list[int], depth: int) -> set[int]:
    if exits is None or (isinstance(exits, str) and exits == "all"):
        wanted = {layer for layer in available if layer <= depth}
    elif isinstance(exits, str) and exits == "last":
        wanted = {depth}
    elif isinstance(exits, str) or not hasattr(exits, "__iter__"):
        raise OfframpError(f"exits={exits!r}: use 'all', 'last' or a list of layers such as [3, 6, 12]")
    else:
        wanted = {int(layer) for layer in exits}
    missing = sorted((wanted | {depth}) - set(available))
    if missing:
        raise OfframpError(
            f"no exit after layer {missing[0]} (the model has exits after {available}); choose among these"
        )
    return wanted


def as_config(config: Any) -> PreTrainedConfig:
    """A backbone configuration from itself or its dict."""
    if isinstance(config, PreTrainedConfig):
        backbone_class(config)
        return config
    if not isinstance(config, dict) or "model_type" not in config:
        raise OfframpError("backbone_config must be a Hugging Face configuration, or its dict with a model_type")
    check_sizes(config)
    known = AutoConfig.for_model(config["model_type"], **{k: v for k, v in config.items() if k != "model_type"})
    backbone_class(known)
    return known


def check_sizes(settings: Mapping[str, Any]) -> None:
    """Refuse numbers that no model has."""
    for name, value in settings.items():
        least, most = 1 if name in SIZES else -math.inf, MOST.get(name, math.inf)
        if isinstance(value, int | float) and not least <= value <= most:
            raise OfframpError(f"{name} is {value}: expected {f'1 to {most}' if name in MOST else '1 or more'}")


def spread(sharing: int | Sequence[int] | None, exits: int, what: str) -> list[int]:
    """For each exit the number of its pooler (or classifier): n of them serve n even runs of neighbouring exits."""
    if sharing is None:
        return list(range(exits))
    if isinstance(sharing, int):
        if sharing > exits:
            raise OfframpError(f"{sharing} {what} for {exits} exits: at most one each")
        if sharing < (what == "classifiers"):
            raise OfframpError(f"{sharing} {what}: an exit needs a classifier, and may do without a pooler (0)")
        return [exit * sharing // exits for exit in range(exits)] if sharing else []
    numbers = [int(number) for number in sharing]
    if (numbers or what == "classifiers") and len(numbers) != exits:
        raise OfframpError(f"{what} names {len(numbers)} exits, but the model has {exits}")
    return numbers


def classifier_dropout(config: PreTrainedConfig) -> float:
    """The dropout a Hugging Face classifier on this backbone would use."""
    for field in ("classifier_dropout", "classifier_dropout_prob", "hidden_dropout_prob"):
        value = getattr(config, field, None)
        if value is not None:
            return float(value)
    return 0.0


AutoConfig.register("offramp", MultiExitConfig, exist_ok=True)
