"""What a promise covers: it was made in one precision, of texts cut to one length, and says nothing of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offramp.engine.backends import PRECISIONS, choose
from offramp.models import MultiExitModel
from offramp.tasks.encoding import LENGTH, tokens_at_most
from offramp.tasks.squad.windows import LENGTH as WINDOW

ONCE_CALLED = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""What older certificates call precisions."""


@dataclass(frozen=True)
class RunAs:
    """In which precision a model runs, as the engine calls it, and to how many tokens texts are cut; None: not known.

    Both decide what the exits say, and with it where texts leave and what is lost.
    """

    precision: str | None = None
    max_length: int | None = None

    @classmethod
    def of(
        cls,
        model: MultiExitModel,
        *,
        max_length: int | None = None,
        device: str = "auto",
        precision: str = "auto",
        backend: str = "auto",
        threads: int | None = None,
        **_: Any,
    ) -> RunAs:
        """How an `Engine` with these settings runs a model."""
        setting = choose(model, device, precision, backend, threads)
        return cls(setting.precision, cut_to(model, max_length))

    @classmethod
    def certified(cls, data: Mapping[str, Any]) -> RunAs:
        """How the model ran when it was calibrated, by what a certificate says of its rows."""
        precision, length = data.get("precision"), data.get("max_length")
        name = ONCE_CALLED.get(precision, precision) if isinstance(precision, str) else None
        known = isinstance(length, int) and not isinstance(length, bool) and length > 0
        return cls(name if name in PRECISIONS else None, length if known else None)

    def __str__(self) -> str:
        parts = {"in": self.precision, "at": None if self.max_length is None else f"{self.max_length} tokens"}
        return " ".join(f"{word} {value}" for word, value in parts.items() if value is not None)

    @property
    def options(self) -> str:
        """As `offramp calibrate` is told it."""
        asked = {"--precision": self.precision, "--max-length": self.max_length}
        return " ".join(f"{option} {value}" for option, value in asked.items() if value is not None)


@dataclass(frozen=True)
class NotCovered:
    """In what a run differs from that of the calibration."""

    then: RunAs
    now: RunAs

    def __str__(self) -> str:
        return f"its promise was made {self.then}, and nothing is promised {self.now}"


def not_covered(data: Mapping[str, Any], now: RunAs) -> NotCovered | None:
    """How a run differs from that which a certificate is of, by what it says of its rows; None where it covers the run.

    What is not known, in a certificate or of the run, contradicts nothing.
    """
    then = RunAs.certified(data)
    pairs = {name: (getattr(then, name), getattr(now, name)) for name in ("precision", "max_length")}
    differ = {name: pair for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]}
    if not differ:
        return None
    before, after = ({name: pair[side] for name, pair in differ.items()} for side in (0, 1))
    return NotCovered(RunAs(**before), RunAs(**after))


def cut_to(model: MultiExitModel, max_length: int | None) -> int:
    """Tokens that texts, or windows on them, are cut to, where this was asked for."""
    return tokens_at_most(model, max_length, WINDOW if model.objective.name == "span" else LENGTH)
