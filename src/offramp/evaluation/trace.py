"""The trace: every exit's logits for every sample. One pass over the data; everything else is computed from it."""

from __future__ import annotations

import dataclasses
import json
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError, one_line
from offramp.evaluation.cost import cost_ratio, exit_counts, speed_up
from offramp.evaluation.elue import ReferenceCurve, elue_score
from offramp.evaluation.flops import ModelShape, elue_mflops, elue_table
from offramp.evaluation.results import ExitScore, OperatingPoint, Results, Sweep
from offramp.evaluation.sweep import area, pareto
from offramp.models import MultiExitModel
from offramp.policies import REGISTRY, Policy, first_exit, policy_from_text
from offramp.tasks.encoding import Row, TextEncoder
from offramp.tasks.labels import in_model_order, label_names, task_numbers
from offramp.tasks.metrics import pearson, predictions_of, score
from offramp.tasks.task import Examples, Task

FORMAT = 1
ARRAYS = ("logits", "labels", "lengths")
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""To run a model in instead of the precision of its weights."""

OnRows = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""


@dataclass(frozen=True)
class Trace:
    """What a model said at every exit, and to what."""

    logits: NDArray[np.float32]
    """(E, N, C)"""
    labels: NDArray[Any] | None
    """(N,) in the model's numbering, or real numbers in regression; None where the data has none."""
    lengths: NDArray[np.int64]
    """(N,) tokens of each sample, special ones included."""
    exit_layers: tuple[int, ...]
    shape: ModelShape
    task: str
    label_names: tuple[str, ...]
    """In the model's order; none for regression."""
    metrics: tuple[str, ...]
    """The first is the score."""
    split: str
    task_numbers: tuple[int, ...] = ()
    """For each label of the model, its number in the task; empty where they are the same."""
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
    precision: str = "float32"
    seconds: float = 0.0
    """Of the pass, all exits of all samples included."""
    fingerprint: str = ""
    """Of weights, configuration, tokens and labels: another one means that this trace is out of date."""
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        exits, rows = self.logits.shape[:2]
        classes = len(self.label_names) or 1
        if (exits, classes) != (len(self.exit_layers), self.logits.shape[2]) or len(self.lengths) != rows:
            raise OfframpError(
                f"a trace of {len(self.exit_layers)} exits, {len(self.lengths)} samples and {classes} answers needs "
                f"logits of that shape, not {self.logits.shape}"
            )
        if self.labels is not None and len(self.labels) != rows:
            raise OfframpError(f"{len(self.labels)} labels for {rows} samples")

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def kind(self) -> str:
        """`classification` or `regression`."""
        return "classification" if self.label_names else "regression"

    @property
    def depth(self) -> int:
        return self.shape.depth

    @cached_property
    def tensor(self) -> Tensor:
        return torch.from_numpy(self.logits)

    @cached_property
    def full_depth(self) -> NDArray[Any]:
        """The answers of the last exit: (N,)."""
        return predictions_of(self.logits[-1])

    @cached_property
    def mflops(self) -> NDArray[np.float64]:
        """ELUE's count for each sample by the exit it leaves by: (E, N)."""
        return elue_table(self.shape, self.exit_layers, self.lengths)

    @cached_property
    def ebert_mflops(self) -> NDArray[np.float64]:
        """EBERT's count: (E, N)."""
        return np.stack([self.shape.ebert_flops(self.lengths, layer) / 1e6 for layer in self.exit_layers])

    def scores_of(self, predictions: NDArray[Any]) -> dict[str, float]:
        """By metric; none where there are no labels."""
        if self.labels is None:
            return {}
        answers, labels = self._as_task_numbers(predictions), self._as_task_numbers(self.labels)
        return {metric: score(metric, answers, labels) for metric in self.metrics}

    def _as_task_numbers(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.task_numbers)[numbers] if self.task_numbers else numbers

    def agreement_of(self, predictions: NDArray[Any]) -> float:
        """Share of answers that are full depth's; in regression, the correlation with them."""
        same = predictions == self.full_depth
        if self.kind == "classification" or same.all():
            return float(same.mean())
        return pearson(predictions, self.full_depth)

    def scores(self) -> list[ExitScore]:
        """Each exit answering for every sample."""
        found = []
        for layer, logits in zip(self.exit_layers, self.logits, strict=True):
            predictions = predictions_of(logits)
            mflops = float(np.mean(elue_mflops(self.shape.elue_macs(self.lengths, layer))))
            found.append(ExitScore(layer, self.scores_of(predictions), mflops, self.agreement_of(predictions)))
        return found

    def exits(self, policy: Policy | str) -> NDArray[np.int64]:
        """Which exit (0-based) each sample leaves by: (N,)."""
        policy = policy_from_text(policy) if isinstance(policy, str) else policy
        return first_exit(policy, self.tensor, self.exit_layers, self.kind).numpy()

    def point(self, policy: Policy | str) -> OperatingPoint:
        """What a policy gives."""
        return self._point(str(policy), self.exits(policy))

    def _point(self, policy: str, exits: NDArray[np.int64]) -> OperatingPoint:
        samples = np.arange(len(self))
        layers = np.asarray(self.exit_layers)[exits]
        predictions = predictions_of(self.logits[exits, samples])
        counts = exit_counts(layers, self.depth)
        return OperatingPoint(
            policy=policy,
            scores=self.scores_of(predictions),
            mean_layers=float(layers.mean()),
            cost=cost_ratio(layers, self.depth),
            speed_up=speed_up(layers, self.depth),
            mflops=float(self.mflops[exits, samples].mean()),
            agreement=self.agreement_of(predictions),
            exits={layer: counts[layer] for layer in self.exit_layers},
            ebert_mflops=float(self.ebert_mflops[exits, samples].mean()),
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
        if self.labels is None:
            return None
        first = self.scores_of(predictions_of(self.logits[0]))[self.metrics[0]]
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
        reference = reference if self.labels is not None else None
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
            rows=len(self),
            metrics=list(self.metrics),
            depth=self.depth,
            exits=self.scores(),
            sweeps=sweeps,
            pareto=pareto(point for sweep in sweeps for point in sweep.points),
            point=None if policy is None else self.point(policy),
            settings=self.settings() | ({"reference": reference.source} if reference else {}),
        )

    def settings(self) -> dict[str, Any]:
        """How the numbers were made."""
        names = ("source", "data", "recipe", "max_length", "batch_size", "device", "precision", "seconds", "versions")
        return {name: getattr(self, name) for name in names}

    def save(self, path: str | Path) -> Path:
        """One .npz file: arrays, and everything else as JSON text. Nothing in it can run."""
        path = Path(path)
        about = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ARRAYS}
        about |= {"format": FORMAT, "shape": dataclasses.asdict(self.shape)}
        arrays = {name: getattr(self, name) for name in ARRAYS if getattr(self, name) is not None}
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".part.npz")
        np.savez_compressed(scratch, about=np.array(json.dumps(about)), **arrays)
        scratch.replace(path)
        return path

    @staticmethod
    def load(path: str | Path) -> Trace:
        """What `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                about: dict[str, Any] = json.loads(str(stored["about"]))
                about |= {name: stored.get(name) for name in ARRAYS}
            if about.pop("format") != FORMAT:
                raise OfframpError(f"{path} was written by another version of offramp: evaluate the model again")
            about |= {name: tuple(about[name]) for name in ("exit_layers", "label_names", "metrics", "task_numbers")}
            return Trace(**about | {"shape": ModelShape(**about["shape"])})
        except FileNotFoundError as error:
            raise OfframpError(f"there is no trace {path}") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            if isinstance(error, OfframpError) and str(path) in str(error):
                raise
            raise OfframpError(f"{path} is no trace of offramp evaluate ({one_line(error)})") from error


def _rule(name: str) -> type[Policy]:
    if name not in REGISTRY:
        raise OfframpError(f"unknown policy {name!r}: use one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[name]


def collect(
    model: MultiExitModel,
    task: Task,
    examples: Examples,
    rows: Sequence[Row],
    encoder: TextEncoder,
    *,
    split: str = "dev",
    batch_size: int = 32,
    device: str | torch.device | None = None,
    precision: str | None = None,
    fingerprint: str = "",
    recipe: str | None = None,
    on_rows: OnRows | None = None,
) -> Trace:
    """Run a model over examples, encoded as `rows`, and keep what every exit says."""
    names = label_names(model, task)
    labels = None if examples.labels is None else np.asarray(in_model_order(model, task, examples))
    device = torch.device(device if device is not None else model.device)
    started = time.perf_counter()
    logits = exit_logits(model, rows, encoder, batch_size, device, precision, on_rows)
    return Trace(
        logits=logits,
        labels=labels,
        lengths=np.array([len(row) for row in rows]),
        exit_layers=model.exits.layers,
        shape=ModelShape.of(model),
        task=task.name,
        label_names=names,
        metrics=task.metrics,
        split=split,
        task_numbers=task_numbers(model, task),
        model=str(model.name_or_path),
        source=examples.source,
        data=examples.digest(),
        recipe=recipe,
        max_length=encoder.max_length,
        batch_size=batch_size,
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        precision=precision or str(model.dtype).removeprefix("torch."),
        seconds=round(time.perf_counter() - started, 3),
        fingerprint=fingerprint,
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
    )


@torch.no_grad()
def exit_logits(
    model: MultiExitModel,
    rows: Sequence[Row],
    encoder: TextEncoder,
    batch_size: int = 32,
    device: str | torch.device | None = None,
    precision: str | None = None,
    on_rows: OnRows | None = None,
) -> NDArray[np.float32]:
    """Every exit's logits of rows in their order, (E, N, C); rows of like length are run together.

    The model is left as it was found: its mode, and the device it lies on.
    """
    if model.objective.name == "span":
        raise OfframpError("a model that answers with spans cannot be evaluated yet: only labels and numbers can")
    at_home, training = model.device, model.training
    device = torch.device(device) if device is not None else at_home
    by_length = sorted(
        range(len(rows)), key=lambda row: -len(rows[row])
    )  # the longest first: if memory runs out, at once
    logits = np.empty((len(model.exits), len(rows), model.outputs), dtype=np.float32)
    try:
        model.eval().to(device)
        for start in range(0, len(rows), batch_size):
            numbers = by_length[start : start + batch_size]
            batch: dict[str, Any] = {
                name: tensor.to(device) for name, tensor in encoder.pad([rows[n] for n in numbers]).items()
            }
            with _autocast(device, precision):
                said, _ = model.run(**batch)
            logits[:, numbers] = torch.stack(said).float().cpu().numpy()  # waits for the device
            if on_rows:
                on_rows(min(start + batch_size, len(rows)), len(rows))
    finally:
        model.train(training).to(at_home)
    return logits


def _autocast(device: torch.device, precision: str | None) -> AbstractContextManager[Any]:
    if precision is None:
        return nullcontext()
    if precision not in PRECISIONS:
        raise OfframpError(f"precision {precision!r}: use one of {', '.join(PRECISIONS)}, or none for the weights' own")
    return torch.autocast(device.type, PRECISIONS[precision])
