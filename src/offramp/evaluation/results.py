"""What an evaluation found, as plain data: every number that is printed or drawn, and the settings that made it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, one_line
from offramp.typed_json import read_object, typed
from offramp.whole_file import whole_file

FORMAT = 1
"""Raised when a field changes its meaning."""


@dataclass(frozen=True)
class OperatingPoint:
    """A policy with its numbers fixed, and what it gives."""

    policy: str
    """As `policy_from_text` reads it."""
    scores: dict[str, float]
    """By metric, as fractions; the task's own metric first. Empty where there are no labels."""
    mean_layers: float
    cost: float
    """Mean layers over all layers: ELBERT's computation cost. The papers' expected saving is 1 − cost."""
    speed_up: float
    """All layers over mean layers (ElasticBERT). A ratio of layers, not of time."""
    mflops: float
    """Mean over the samples, by the ELUE benchmark's counter, each sample at its own length, visited exits included."""
    agreement: float
    """Share of samples whose answer is that of full depth; in regression, their correlation."""
    exits: dict[int, int]
    """How many samples left after each layer that has an exit."""
    ebert_mflops: float | None = None
    """The same mean by EBERT's formula, which counts the layers' products only."""

    @property
    def score(self) -> float | None:
        return next(iter(self.scores.values()), None)


@dataclass(frozen=True)
class ExitScore:
    """One exit answering for every sample."""

    layer: int
    scores: dict[str, float]
    mflops: float
    """With this exit as the only one asked."""
    agreement: float


@dataclass(frozen=True)
class Sweep:
    """One policy over its whole range, cheapest point first."""

    name: str
    """The policy's name, such as `entropy`."""
    points: list[OperatingPoint]
    area: float | None
    """Mean over budgets from the first exit's cost to 1 of the best score within the budget; None without labels."""
    elue: float | None = None
    """ELUE score: mean lead over the reference curve at equal FLOPs, in points of percent."""

    def plot(self, full_depth: float | None = None) -> Any:
        """Score against cost as a figure, which a notebook shows; with a line where full depth is, if given."""
        from offramp.evaluation.plots import sweep_figure

        metric = next(iter(self.points[0].scores), "agreement") if self.points else "agreement"
        return sweep_figure(self, metric, full_depth)

    def table(self) -> Any:
        """Every point, for a terminal or a notebook."""
        from offramp.evaluation.tables import sweep_table

        return sweep_table(self)


@dataclass(frozen=True)
class GateReport:
    """What gates save at full depth, by EBERT's formula, and which heads and neurons they keep."""

    original_gflops: float
    """Mean over the inputs, each at its own length, with every head and neuron."""
    dynamic_gflops: float
    """With what the gates keep, and the predictors' own cost."""
    ratio: float
    heads: list[float]
    """Mean share of kept heads in each layer."""
    neurons: list[float]
    head_rates: list[list[float | None]]
    """For each layer and head, the share of inputs that kept it; None where folding deleted one."""
    neuron_rates: list[list[float | None]]
    """For each layer and block of neurons: the gates' own blocks or, where these are many, means over neighbours."""


@dataclass(frozen=True)
class Results:
    """An evaluation of one model on one split."""

    name: str
    """What tables and plots call it: the recipe's name and the model folder's, or what the user says."""
    model: str
    task: str
    split: str
    rows: int
    metrics: list[str]
    """The first is the score."""
    depth: int
    """Layers of the backbone."""
    exits: list[ExitScore]
    sweeps: list[Sweep]
    pareto: list[OperatingPoint]
    """The points of all sweeps that no other point beats in both score and cost, cheapest first."""
    point: OperatingPoint | None = None
    """The operating point that was asked for."""
    gates: GateReport | None = None
    """Of a model that has gates."""
    settings: dict[str, Any] = field(default_factory=dict)
    """How the numbers were made: data, lengths, batch size, device, precision, seconds, versions, recipe."""

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def full_depth(self) -> ExitScore:
        return self.exits[-1]

    def write(self, path: Path) -> None:
        """As JSON that `read` reads."""
        data = {"format": FORMAT, **dataclasses.asdict(self)}
        with whole_file(path) as file:
            file.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    @staticmethod
    def read(path: Path) -> Results:
        """What `write` wrote."""
        try:
            data = read_object(path)
            if typed(int, data.pop("format", None), "format") != FORMAT:
                raise OfframpError(f"{path} was written by another version of offramp: evaluate the model again")
            return _checked(typed(Results, data))
        except OSError as error:
            raise OfframpError(f"{path} cannot be read ({error.strerror})") from error
        except ValueError as error:
            if isinstance(error, OfframpError):
                raise
            raise OfframpError(f"{path} is no results file of offramp evaluate ({one_line(error)})") from error


def _checked(results: Results) -> Results:
    """What every reader of results relies on."""
    if not results.exits or not results.metrics:
        raise ValueError("exits and metrics must not be empty")
    if results.depth < 1 or any(not 1 <= exit.layer <= results.depth for exit in results.exits):
        raise ValueError("exits must be after layers that there are")
    return results
