"""What traces of labels, numbers and spans have in common: points, sweeps, results and the file they are kept in."""

from __future__ import annotations

import dataclasses
import json
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError, one_line
from offramp.evaluation.cost import cost_ratio, exit_counts, speed_up
from offramp.evaluation.elue import ReferenceCurve, elue_score
from offramp.evaluation.flops import GateCounts, ModelShape, ebert_flops_to, elue_macs_to, elue_mflops, share_kept
from offramp.evaluation.results import ExitScore, GateReport, OperatingPoint, Results, Sweep
from offramp.evaluation.sweep import area, pareto
from offramp.policies import REGISTRY, Policy, policy_from_text
from offramp.typed_json import typed
from offramp.whole_file import whole_bytes

FORMAT = 1
DEEPEST, LARGEST = 1000, 2**24
"""Of a model's layers, and of its other sizes: a file that says more is damaged."""
UNREADABLE = (
    *(OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
)
"""What NumPy, zip files and our own fields say to what is no trace."""

Some = TypeVar("Some", bound="TraceBase")


@dataclass(frozen=True, kw_only=True)
class TraceBase(ABC):
    """What a model said at every exit to each of N inputs, and what can be told from that without the model.

    A policy chooses an exit for each input; scores, agreement and costs are then those of the choice, `exits` (N,).
    """

    kinds: ClassVar[frozenset[str]]
    """The kinds of task that the class is for."""

    logits: NDArray[np.float32]
    """Every exit's, first dimension the exits."""
    lengths: NDArray[np.int64]
    """(N,) tokens of each input, special ones included."""
    exit_layers: tuple[int, ...]
    shape: ModelShape
    task: str
    metrics: tuple[str, ...]
    """The first is the score."""
    split: str
    model: str = ""
    """Folder or name."""
    source: str = ""
    """Where the samples come from."""
    data: str = ""
    """A digest of the samples and their labels: results on other samples are not to be compared."""
    recipe: str | None = None
    max_length: int = 0
    batch_size: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    seconds: float = 0.0
    """Of the pass, all exits of all inputs included."""
    fingerprint: str = ""
    """Of weights, configuration, tokens and labels: another one means that this trace is out of date."""
    versions: dict[str, str] = field(default_factory=dict)
    heads_kept: NDArray[np.int64] | None = None
    """(n, N) heads that each layer's gates kept for each input. None, as the next four, where there are no gates."""
    neurons_kept: NDArray[np.int64] | None = None
    """(n, N)"""
    predictor_flops: NDArray[np.float64] | None = None
    """(n,) operations of each layer's predictors for one input."""
    head_rates: NDArray[np.float64] | None = None
    """(n, heads) share of the inputs that kept each head; NaN where folding deleted some."""
    neuron_rates: NDArray[np.float64] | None = None
    """(n, neurons / block)"""

    @property
    @abstractmethod
    def kind(self) -> str:
        """One of `kinds`."""

    @property
    @abstractmethod
    def labelled(self) -> bool:
        """Whether there are true answers to score by."""

    @property
    @abstractmethod
    def tensor(self) -> Tensor:
        """The logits as policies look at them: (E, N, C), or (E, N, T, 2) with padding for spans."""

    @abstractmethod
    def exits(self, policy: Policy | str) -> NDArray[np.int64]:
        """Which exit (0-based) each input leaves by: (N,)."""

    @abstractmethod
    def scores_at(self, exits: NDArray[np.int64]) -> dict[str, float]:
        """By metric; none where there are no true answers."""

    @abstractmethod
    def agreement_at(self, exits: NDArray[np.int64]) -> float:
        """How far the answers are those of full depth."""

    @abstractmethod
    def same_at(self, exits: NDArray[np.int64], tolerance: float = 0.0) -> NDArray[np.bool_]:
        """Whether each answer is that of full depth; numbers, whether it is that near."""

    @abstractmethod
    def right_at(self, exits: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Whether each answer, or full depth's, is the true one, of labels and spans whose true answers are known."""

    @abstractmethod
    def take(self: Some, answers: NDArray[np.int64]) -> Some:
        """The same trace of some of its answers, and of the inputs they come from."""

    def per_answer(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """What inputs cost, as means over the inputs of each answer."""
        return numbers

    @property
    def answers(self) -> int:
        """How many answers are scored: one for each input, unless several inputs share one."""
        return len(self)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def depth(self) -> int:
        return self.shape.depth

    @cached_property
    def mflops(self) -> NDArray[np.float64]:
        """ELUE's millions of operations of each input by the exit it leaves by, visited exits included: (E, N)."""
        layers = enumerate(self.exit_layers, start=1)
        return np.stack([elue_mflops(self._elue_macs(layer, exits)) for exits, layer in layers])

    def _elue_macs(self, layer: int, exits: int) -> NDArray[np.float64]:
        return elue_macs_to(self.shape, self.lengths, layer, exits, self.gates)

    @cached_property
    def gates(self) -> GateCounts | None:
        if self.heads_kept is None or self.neurons_kept is None or self.predictor_flops is None:
            return None
        return GateCounts(self.heads_kept, self.neurons_kept, self.predictor_flops)

    def gate_report(self) -> GateReport | None:
        """EBERT's report at full depth, each input at its own length; None where there are no gates."""
        if self.gates is None or self.head_rates is None or self.neuron_rates is None:
            return None
        original = float(ebert_flops_to(self.shape, self.lengths, self.depth).mean())
        dynamic = float(ebert_flops_to(self.shape, self.lengths, self.depth, self.gates).mean())
        return GateReport(
            original_gflops=original / 1e9,
            dynamic_gflops=dynamic / 1e9,
            ratio=share_kept(self.shape, self.lengths, self.gates),
            heads=[float(kept) / self.shape.heads for kept in self.gates.heads.mean(1)],
            neurons=[float(kept) / self.shape.intermediate for kept in self.gates.neurons.mean(1)],
            head_rates=as_lists(self.head_rates),
            neuron_rates=as_lists(in_columns(self.neuron_rates)),
        )

    @cached_property
    def ebert_mflops(self) -> NDArray[np.float64]:
        """EBERT's count: (E, N)."""
        counts = [ebert_flops_to(self.shape, self.lengths, layer, self.gates) for layer in self.exit_layers]
        return np.stack(counts) / 1e6

    def _taken(self, inputs: NDArray[np.int64]) -> dict[str, Any]:
        """Those of the fields here that hold something for each input."""
        kept = {name: getattr(self, name) for name in ("heads_kept", "neurons_kept")}
        counts = {name: value[:, inputs] for name, value in kept.items() if value is not None}
        return {"lengths": self.lengths[inputs], **counts}

    @property
    def full_depth_mflops(self) -> NDArray[np.float64]:
        """EBERT's count of each input at full depth: (N,)."""
        last: NDArray[np.float64] = self.ebert_mflops[-1]
        return last

    @property
    def most_mflops(self) -> float:
        """EBERT's count of the longest input there can be, which is cut to that, with every head and neuron."""
        longest = max(self.max_length, int(self.lengths.max(initial=0)))
        predictors = 0.0 if self.predictor_flops is None else float(self.predictor_flops.sum())
        return float(self.shape.ebert_flops(longest) + predictors) / 1e6

    def all_at(self, exit: int) -> NDArray[np.int64]:
        """Everybody leaves by one exit."""
        return np.full(len(self), exit)

    def scores(self) -> list[ExitScore]:
        """Each exit answering for every input."""
        found = []
        for exit, layer in enumerate(self.exit_layers):
            exits = self.all_at(exit)
            mflops = float(np.mean(elue_mflops(self._elue_macs(layer, 1))))
            found.append(ExitScore(layer, self.scores_at(exits), mflops, self.agreement_at(exits)))
        return found

    def point(self, policy: Policy | str) -> OperatingPoint:
        """What a policy gives."""
        return self._point(str(policy), self.exits(policy))

    def full_depth_point(self) -> OperatingPoint:
        """What the last exit gives, alone."""
        return self._point("full depth", self.all_at(len(self.exit_layers) - 1))

    def _point(self, policy: str, exits: NDArray[np.int64]) -> OperatingPoint:
        inputs = np.arange(len(self))
        layers = np.asarray(self.exit_layers)[exits]
        counts = exit_counts(layers, self.depth)
        return OperatingPoint(
            policy=policy,
            scores=self.scores_at(exits),
            mean_layers=float(layers.mean()),
            cost=cost_ratio(layers, self.depth),
            speed_up=speed_up(layers, self.depth),
            mflops=float(self.mflops[exits, inputs].mean()),
            agreement=self.agreement_at(exits),
            exits={layer: counts[layer] for layer in self.exit_layers},
            ebert_mflops=float(self.ebert_mflops[exits, inputs].mean()),
        )

    def sweep(
        self,
        policy: type[Policy] | str,
        candidates: Sequence[Policy | str] | None = None,
        reference: ReferenceCurve | None = None,
        name: str | None = None,
    ) -> Sweep:
        """A policy over its whole range: its own candidates, without those that decide the same, or the given ones."""
        rule = policy if isinstance(policy, type) else _rule(policy)
        wanted = rule.candidates(self.tensor, self.exit_layers, self.kind) if candidates is None else candidates
        policies = [policy_from_text(one) if isinstance(one, str) else one for one in wanted]
        points, seen = [], set()
        for one in policies:
            exits = self.exits(one)
            if candidates is not None or exits.tobytes() not in seen:
                points.append(self._point(str(one), exits))
            seen.add(exits.tobytes())
        points.sort(key=lambda point: point.cost)
        return Sweep(
            name=name or (policies[0].curve if policies else rule.name),
            points=points,
            area=self._area(points),
            elue=None if reference is None or not points else elue_score(points, reference),
        )

    def _area(self, points: list[OperatingPoint]) -> float | None:
        if not self.labelled:
            return None
        first = self.scores_at(self.all_at(0))[self.metrics[0]]
        return area(points, self.exit_layers[0] / self.depth, first)

    def results(
        self,
        policy: Policy | str | None = None,
        published: bool = False,
        reference: ReferenceCurve | None = None,
        name: str | None = None,
    ) -> Results:
        """Everything: the exits, a sweep of every policy, the Pareto front, and the operating point asked for.

        `published` adds the settings of the papers, as sweeps of their own.
        """
        reference = reference if self.labelled else None
        sweeps = []
        for rule in (rule for rule in REGISTRY.values() if self.kind in rule.tasks):
            sweeps.append(self.sweep(rule, reference=reference))
            if published and (listed := rule.from_papers(self.kind)):
                sweeps.append(self.sweep(rule, listed, reference, f"{listed[0].curve}, published"))
        sweeps = sorted((sweep for sweep in sweeps if sweep.points), key=lambda sweep: sweep.name)
        return Results(
            name=name
            or " ".join(filter(None, [self.recipe, Path(self.model).resolve().name if self.model else ""]))
            or self.task,
            model=self.model,
            task=self.task,
            split=self.split,
            rows=self.answers,
            metrics=list(self.metrics),
            depth=self.depth,
            exits=self.scores(),
            sweeps=sweeps,
            pareto=pareto(point for sweep in sweeps for point in sweep.points),
            point=None if policy is None else self.point(policy),
            gates=self.gate_report(),
            settings=self.settings() | ({"reference": reference.source} if reference else {}),
        )

    def settings(self) -> dict[str, Any]:
        """How the numbers were made."""
        names = ("source", "data", "recipe", "max_length", "batch_size", "device", "precision", "seconds", "versions")
        return {name: getattr(self, name) for name in names}

    def save(self, path: str | Path) -> Path:
        """One .npz file: arrays, and everything else as JSON text. Nothing in it can run."""
        path = Path(path)
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        arrays: dict[str, Any] = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        about = {name: value for name, value in fields.items() if name not in arrays}
        about |= {"format": FORMAT, "kind": self.kind, "shape": dataclasses.asdict(self.shape)}
        with whole_bytes(path) as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        return path

    @classmethod
    def load(cls: type[Some], path: str | Path) -> Some:
        """What `save` wrote: a trace of this class or, asked of the base, of the class that is for its kind."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                fields: dict[str, Any] = json.loads(str(stored["about"]))
                fields |= {name: stored[name] for name in stored.files if name != "about"}
            if fields.pop("format") != FORMAT:
                raise OfframpError(f"{path} was written by another version of offramp: evaluate the model again")
            made_for = cls._class_for(fields.pop("kind", "classification"))
            kinds = get_type_hints(made_for)
            fields |= {
                name: typed(kinds[name], value, name)
                for name, value in fields.items()
                if not isinstance(value, np.ndarray)
            }
            return made_for(**fields)._checked()
        except FileNotFoundError as error:
            raise OfframpError(f"there is no trace {path}") from error
        except UNREADABLE as error:
            if isinstance(error, OfframpError) and str(path) in str(error):
                raise
            raise OfframpError(f"{path} is no trace of offramp evaluate ({one_line(error)})") from error

    def _checked(self: Some) -> Some:
        """What is computed from a trace that was read relies on this."""
        layers, shape = self.exit_layers, self.shape
        if not layers or list(layers) != sorted(layers) or layers[0] < 1 or layers[-1] != shape.depth:
            raise ValueError(f"exit_layers must ascend from 1 or more to {shape.depth}")
        sizes = dataclasses.asdict(shape).values()
        if shape.depth > DEEPEST or any(isinstance(size, int) and not 1 <= size <= LARGEST for size in sizes):
            raise ValueError("shape must hold the sizes of a model")
        if not self.metrics:
            raise ValueError("metrics must not be empty")
        return self

    @classmethod
    def _class_for(cls: type[Some], kind: str) -> type[Some]:
        for known in cls.__subclasses__() or [cls]:
            if kind in known.kinds:
                return known
        raise OfframpError(f"it is of {kind}: expected {' or '.join(sorted(cls.kinds))}")


def _rule(name: str) -> type[Policy]:
    if name not in REGISTRY:
        raise OfframpError(f"unknown policy {name!r}: use one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[name]


def as_lists(rates: NDArray[np.float64]) -> list[list[float | None]]:
    """Rows of rates, with what is not there as None, which JSON can hold."""
    return [[None if np.isnan(rate) else round(float(rate), 4) for rate in row] for row in rates]


def in_columns(rates: NDArray[np.float64], most: int = 64) -> NDArray[np.float64]:
    """Means over neighbours where there are more columns than can be drawn: (n, units) to (n, `most` or fewer)."""
    if rates.shape[1] <= most:
        return rates
    parts = np.array_split(rates, most, axis=1)
    there = [(~np.isnan(part)).sum(1) for part in parts]
    sums = [np.nansum(part, axis=1) for part in parts]
    return np.stack([np.where(n > 0, s / np.maximum(n, 1), np.nan) for s, n in zip(sums, there, strict=True)], axis=1)
