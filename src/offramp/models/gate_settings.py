"""What gates a model has: how they decide, how many neurons share one, and what was folded into the weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offramp.errors import OfframpError

MODES = ("gumbel", "topk")
FIRST_INPUTS = ("mean", "padded_mean")
PREDICTOR_WIDTH = 64
"""Hidden units of EBERT's predictors."""


@dataclass(frozen=True)
class FoldedLayer:
    """What is left of a layer whose constant gates were folded into its weights."""

    heads: int
    neurons: int
    predicted_heads: int
    """Gates of heads that still depend on the input."""
    predicted_neurons: int
    """Gates of neurons, or blocks of them, that still do."""


@dataclass(frozen=True)
class GateSettings:
    """How the gates of a model decide.

    Args:
        sparsity: 1 − the target ratio of FLOPs. Decides how many are dropped where the mode is `topk`.
        heads: `gumbel`: each gate by its own logit; `topk`: the share `sparsity` with the smallest logits is dropped.
        neurons: the same for the neurons of the feed-forward blocks.
        block: neurons that share a gate; 1 is EBERT, 32 or 64 make skipping fast.
        width: hidden units of the predictors.
        temperature: τ of the noisy gates in training.
        threshold: a gate of the mode `gumbel` is open where its logit is at least this; calibration may raise it.
        first_input: what the first layer's head gates see: the `mean` over the tokens, or over the padding too
            (`padded_mean`, as the released code has it).
        folded: for each layer what is left of it, once constant gates are folded.
    """

    sparsity: float
    heads: Literal["gumbel", "topk"] = "gumbel"
    neurons: Literal["gumbel", "topk"] = "gumbel"
    block: int = 1
    width: int = PREDICTOR_WIDTH
    temperature: float = 1.0
    threshold: float = 0.0
    first_input: Literal["mean", "padded_mean"] = "mean"
    folded: tuple[FoldedLayer, ...] | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("heads", self.heads, MODES),
            ("neurons", self.neurons, MODES),
            ("first_input", self.first_input, FIRST_INPUTS),
        ):
            if value not in known:
                raise OfframpError(f"gates: {name}={value!r}: use {' or '.join(map(repr, known))}")
        if not 0 <= self.sparsity < 1:
            raise OfframpError(f"gates: sparsity is a share, 0 to less than 1, not {self.sparsity}")
        if self.block < 1 or self.width < 1:
            raise OfframpError("gates: block and width must be 1 or more")
        if not self.temperature > 0:
            raise OfframpError(f"gates: temperature must be more than 0, not {self.temperature}")

    def to_json(self) -> dict[str, Any]:
        """As it stands in `config.json`."""
        data = dataclasses.asdict(self)
        if self.folded is not None:
            data["folded"] = [dataclasses.asdict(layer) for layer in self.folded]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> GateSettings:
        """What `to_json` wrote."""
        try:
            folded = data.get("folded")
            layers = None if folded is None else tuple(FoldedLayer(**layer) for layer in folded)
            return GateSettings(**{**data, "folded": layers})
        except TypeError as error:
            raise OfframpError(f"gates in config.json: {error}") from error

    def check(self, neurons: int) -> None:
        """Refuse blocks that do not divide the layers."""
        if neurons % self.block:
            sizes = [size for size in (16, 32, 48, 64, 96, 128) if neurons % size == 0]
            other = f"use {', '.join(map(str, sizes))} or 1" if sizes else "use 1"
            raise OfframpError(
                f"a gate block of {self.block} does not divide the {neurons} neurons of a layer: {other}"
            )
