"""What was measured, as plain data."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, one_line
from offramp.typed_json import read_object, typed
from offramp.whole_file import whole_file

OURS = "offramp"
"""What our own contestants' names begin with."""
FORMAT = 1
"""Raised when a field changes its meaning."""
PAYS = 1.05
"""Exits that save less than a twentieth of the time are not worth a word."""


@dataclass(frozen=True)
class Timing:
    """One contestant at one batch size."""

    name: str
    precision: str
    texts_per_second: float
    median_ms: float | None
    """Of one batch; None in a stream."""
    p95_ms: float | None
    """None where there are too few batches to tell."""
    batches: int
    """That were timed, over all rounds."""


@dataclass(frozen=True)
class ExitGain:
    """What exits bring over our own full depth, in one precision."""

    precision: str
    speed_up: float
    """Median over rounds of full depth / with exits."""

    @property
    def pays(self) -> bool:
        return self.speed_up >= PAYS


@dataclass(frozen=True)
class Workload:
    """Everybody at one batch size."""

    batch_size: int | None
    """None: a stream, in batches of everybody's own choice."""
    rows: int
    rounds: int
    mean_layers: float
    """That rows go through under the policy."""
    ideal: float
    """All layers over mean layers: what exits would bring if nothing else cost time."""
    timings: list[Timing]
    gains: list[ExitGain]
    fastest: str
    faster_than: dict[str, float]
    """How many times faster the fastest is than each of the others: medians over rounds."""

    @property
    def title(self) -> str:
        return "stream" if self.batch_size is None else f"batch {self.batch_size}"


@dataclass(frozen=True)
class BenchResults:
    """One run of `offramp bench`."""

    model: str
    policy: str
    depth: int
    mean_tokens: float
    workloads: list[Workload]
    skipped: dict[str, str]
    """What was not measured, and why."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Machine, versions, threads, where the rows are from."""

    def write(self, path: Path) -> None:
        """As JSON that `read` reads."""
        with whole_file(path) as file:
            file.write(json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n")

    def as_json(self) -> dict[str, Any]:
        """All of it as a dict, with the number of its format."""
        return {"format": FORMAT, **dataclasses.asdict(self)}

    @staticmethod
    def read(path: Path) -> BenchResults:
        """What `write` wrote."""
        try:
            data = read_object(path)
            if typed(int, data.pop("format", None), "format") != FORMAT:
                raise OfframpError(f"{path} was written by another version of offramp: run offramp bench again")
            return _checked(typed(BenchResults, data))
        except OSError as error:
            raise OfframpError(f"{path} cannot be read ({error.strerror})") from error
        except ValueError as error:
            if isinstance(error, OfframpError):
                raise
            raise OfframpError(f"{path} is no file of offramp bench ({one_line(error)})") from error


def _checked(results: BenchResults) -> BenchResults:
    """What every reader of results relies on."""
    for workload in results.workloads:
        everybody = {timing.name for timing in workload.timings}
        compared = {workload.fastest, *workload.faster_than}
        if not workload.gains or not compared <= everybody or not any(name.startswith(OURS) for name in compared):
            raise ValueError(f"{workload.title}: the fastest and the others are not those that were timed")
    return results
