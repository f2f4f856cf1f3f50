"""Everything that decides what a pre-training gives, as plain data: stored with the model, and checked on resuming."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from offramp.errors import OfframpError
from offramp.recipes.base import one_of
from offramp.training.plan import PRECISIONS

OPTIMISERS = ("muon", "adamw")


@dataclass(frozen=True)
class PretrainingPlan:
    """A pre-training before it starts."""

    shape: Mapping[str, Any] | None = None
    """A Hugging Face configuration (with its model_type) to build a new backbone from; None to go on with `start`."""
    start: str | None = None
    """Folder or name of an encoder to go on from."""
    family: str | None = None
    """What to write; None: what it is. A BERT can be written as an ElasticBERT, which keeps every exit's head."""
    steps: int = 20_000
    batch_size: int = 256
    """Rows a step, over all processes and micro-batches."""
    length: int = 128
    """Tokens a row."""
    long_length: int | None = None
    """Tokens a row in some of the steps, so that later positions are learnt, too; as many tokens a step as else."""
    long_share: float = 0.1
    """How many of the steps these are, spread evenly: at the end of a run they would undo what was learnt."""
    mask_rate: float = 0.15
    order: bool = True
    """Ask every exit for the order of two halves as well (sentence-order prediction)."""
    teacher: str | None = None
    """Folder or name of an encoder whose last states every exit learns to give; a new backbone takes its words."""
    teacher_weight: float = 4.0
    """Of that loss, beside the one of the masked words."""
    teacher_share: float = 1.0
    """Of the rows of a step, how many the teacher is asked about."""
    pairs: str | None = None
    """A table of pairs of texts and how alike they are, which some steps learn from."""
    pairs_share: float = 0.5
    """How many of the steps these are, spread evenly."""
    equilibrium: bool = True
    """Each layer gets the mean of the gradients of the exits above it, not their sum."""
    groups: int = 2
    """Groups of exits that take turns; 1: all exits learn at every step."""
    early_weight: float = 1.0
    """What the losses of all exits but the last count, beside the last's: little, and depth is left to the last."""
    optimiser: Literal["muon", "adamw"] = "muon"
    learning_rate: float = 2e-3
    warmup: float = 0.05
    """Share of the steps in which the learning rate rises; then it falls to 0 in a line."""
    weight_decay: float = 0.05
    clip: float = 1.0
    dropout: float = 0.0
    seed: int = 42
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    accumulate: int = 1
    """Micro-batches a step, on each process."""

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.start is None):
            raise OfframpError("give a shape to build a new backbone from, or an encoder to go on from (one of them)")
        for name in ("start", "teacher", "pairs"):
            value = getattr(self, name)
            if value is not None and Path(value).exists():
                object.__setattr__(self, name, str(Path(value).absolute()))
        one_of("precision", self.precision, tuple(kind for kind in PRECISIONS if kind != "fp16"))
        one_of("optimiser", self.optimiser, OPTIMISERS)
        for name in ("learning_rate", "weight_decay", "teacher_weight", "clip", "seed"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise OfframpError(f"{name.replace('_', ' ')} must be 0 or more, not {getattr(self, name)}")
        for name in ("steps", "batch_size", "groups", "accumulate"):
            if getattr(self, name) < 1:
                raise OfframpError(f"{name.replace('_', ' ')} must be 1 or more, not {getattr(self, name)}")
        for name in ("teacher_share", "early_weight"):
            if not 0 < getattr(self, name) <= 1:
                raise OfframpError(f"{name.replace('_', ' ')} must be more than 0 and at most 1")
        for name in ("warmup", "mask_rate", "dropout", "long_share", "pairs_share"):
            if not 0 <= getattr(self, name) < 1:
                raise OfframpError(f"{name.replace('_', ' ')} must be 0 or more and less than 1")
        if self.long_length is not None and self.long_length <= self.length:
            raise OfframpError(f"long rows ({self.long_length} tokens) must be longer than others ({self.length})")

    @property
    def long_every(self) -> int | None:
        """Every so manieth step takes long rows; None: none does. No group of exits always meets the same kind."""
        if self.long_length is None or not self.long_share:
            return None
        every = max(2, round(1 / self.long_share))
        while math.gcd(every, self.groups) > 1:
            every += 1
        return every

    def rate_at(self, step: int) -> float:
        """The learning rate of step number `step` (0-based): up in a line, then down to 0 in a line."""
        rising = max(1, round(self.warmup * self.steps))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (self.steps - step) / max(1, self.steps - rising)

    def to_json(self) -> dict[str, Any]:
        """As it is stored beside the run."""
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]
