"""The trace: every exit's logits for every sample. One pass over the data; everything else is computed from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine import Engine
from offramp.engine.backends import choose
from offramp.errors import OfframpError
from offramp.evaluation.flops import ModelShape
from offramp.evaluation.gate_counting import GateCounting
from offramp.evaluation.trace_base import TraceBase
from offramp.models import MultiExitModel
from offramp.models.gates import gates_see_padding
from offramp.policies import Fixed, Policy, Threshold, first_exit, policy_from_text
from offramp.policies.threshold import signals_of
from offramp.tasks.encoding import Row, TextEncoder
from offramp.tasks.labels import in_model_order, label_names, task_numbers
from offramp.tasks.metrics import pearson, predictions_of, score
from offramp.tasks.squad import Questions
from offramp.tasks.task import Examples, Task

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""To run a model in instead of the precision of its weights."""

OWN_PRECISION = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
GATED_ROWS = 32
"""In a batch of a model with gates."""
ROWS_TOLD = 64
"""Rows from one sign of progress to the next."""

OnRows = Callable[[int, int], None]
"""Told how many rows are done, and of how many."""


class Encoder(Protocol):
    """What makes batches of rows."""

    @property
    def max_length(self) -> int: ...

    def pad(self, rows: Sequence[Row]) -> dict[str, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Trace(TraceBase):
    """What a model said at every exit, and to what: logits (E, N, C)."""

    kinds = frozenset({"classification", "regression"})

    label_names: tuple[str, ...]
    """In the model's order; none for regression."""
    labels: NDArray[Any] | None = None
    """(N,) in the model's numbering, or real numbers in regression; None where the data has none."""
    task_numbers: tuple[int, ...] = ()
    """For each label of the model, its number in the task; empty where they are the same."""
    reference: NDArray[Any] | None = None
    """(N,) the answers of full depth, where they are those of the same model with other gates; and so the next."""
    reference_mflops: NDArray[np.float64] | None = None

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

    @property
    def kind(self) -> str:
        return "classification" if self.label_names else "regression"

    @property
    def labelled(self) -> bool:
        return self.labels is not None

    @cached_property
    def tensor(self) -> Tensor:
        return torch.from_numpy(self.logits)

    @cached_property
    def full_depth(self) -> NDArray[Any]:
        """The answers of the last exit: (N,)."""
        return predictions_of(self.logits[-1]) if self.reference is None else self.reference

    @property
    def full_depth_mflops(self) -> NDArray[np.float64]:
        return super().full_depth_mflops if self.reference_mflops is None else self.reference_mflops

    def compared_with(self, other: Trace) -> Trace:
        """The same trace, with full depth as another trace of the same rows has it."""
        return replace(self, reference=other.full_depth, reference_mflops=other.full_depth_mflops)

    def exits(self, policy: Policy | str) -> NDArray[np.int64]:
        policy = policy_from_text(policy) if isinstance(policy, str) else policy
        if not isinstance(policy, Threshold):
            return first_exit(policy, self.tensor, self.exit_layers, self.kind).numpy()
        policy.check(self.kind, self.exit_layers)
        rule = replace(policy, threshold=0.0)
        if rule not in self._signals:
            self._signals[rule] = signals_of(rule, self.tensor, self.exit_layers)
        return policy.first_exit(self._signals[rule], self.exit_layers).numpy()

    @cached_property
    def _signals(self) -> dict[Policy, Tensor]:
        """What rules that compare a signal look at, which does not depend on the threshold."""
        return {}

    def predictions(self, exits: NDArray[np.int64]) -> NDArray[Any]:
        """The answer each sample leaves with: (N,)."""
        return predictions_of(self.logits[exits, np.arange(len(self))])

    def scores_at(self, exits: NDArray[np.int64]) -> dict[str, float]:
        if self.labels is None:
            return {}
        answers, labels = self._as_task_numbers(self.predictions(exits)), self._as_task_numbers(self.labels)
        return {metric: score(metric, answers, labels) for metric in self.metrics}

    def _as_task_numbers(self, numbers: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(self.task_numbers)[numbers] if self.task_numbers else numbers

    def same_at(self, exits: NDArray[np.int64], tolerance: float = 0.0) -> NDArray[np.bool_]:
        answers = self.predictions(exits)
        if self.kind == "regression":
            near: NDArray[np.bool_] = np.abs(answers - self.full_depth) <= tolerance
            return near
        same: NDArray[np.bool_] = answers == self.full_depth
        return same

    def right_at(self, exits: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        if self.labels is None or self.kind == "regression":
            raise OfframpError(f"{self.source}: there are no labels to say what is right")
        right: NDArray[np.bool_] = (self.full_depth if exits is None else self.predictions(exits)) == self.labels
        return right

    def take(self, answers: NDArray[np.int64]) -> Trace:
        each = {name: getattr(self, name) for name in ("labels", "reference", "reference_mflops")}
        some: dict[str, Any] = {name: None if value is None else value[answers] for name, value in each.items()}
        return replace(self, logits=self.logits[:, answers], **some, **self._taken(answers))

    def agreement_at(self, exits: NDArray[np.int64]) -> float:
        """Share of answers that are full depth's; in regression, the correlation with them."""
        predictions = self.predictions(exits)
        same = predictions == self.full_depth
        if self.kind == "classification" or same.all():
            return float(same.mean())
        return pearson(predictions, self.full_depth)


def collect(
    model: MultiExitModel, task: Task, examples: Examples, rows: Sequence[Row], encoder: TextEncoder, **settings: Any
) -> Trace:
    """Run a model over examples, encoded as `rows`, and keep what every exit says; settings as `one_pass` has them."""
    names = label_names(model, task)
    labels = None if examples.labels is None else np.asarray(in_model_order(model, task, examples))
    fields = one_pass(model, task, examples, rows, encoder, **settings)
    return Trace(**fields, labels=labels, label_names=names, task_numbers=task_numbers(model, task))


def one_pass(
    model: MultiExitModel,
    task: Task,
    examples: Examples | Questions,
    rows: Sequence[Row],
    encoder: Encoder,
    *,
    split: str = "dev",
    batch_size: int | None = None,
    device: str | torch.device | None = None,
    precision: str | None = None,
    backend: str = "auto",
    threads: int | None = None,
    fingerprint: str = "",
    recipe: str | None = None,
    on_rows: OnRows | None = None,
    said: NDArray[np.float32] | None = None,
) -> dict[str, Any]:
    """Run a model over rows, unless it is known what it `said`: the fields of a trace that do not depend on what the
    model is asked.
    """
    device = torch.device(device if device is not None else model.device)
    started = time.perf_counter()
    gates = GateCounting(model, len(rows)) if model.gates is not None and not model.gates.are_open else None
    if batch_size is not None and batch_size < 1:
        raise OfframpError(f"batch size must be 1 or more, not {batch_size}")
    own = own_precision(model, device) if precision is None else precision
    if said is not None:
        logits = said
    elif gates:
        choose(model, str(device), own, "torch" if backend == "auto" else backend, threads)
        kind = None if own == "fp32" else precision
        together = 1 if gates_see_padding(model.gates) else batch_size or GATED_ROWS
        logits = exit_logits(model, rows, encoder, together, device, kind, on_rows, gates)
    else:
        engine = Engine(
            model, full_depth(model), str(device), own, backend, batch_size=batch_size, threads=threads, record=True
        )
        logits = recorded_logits(engine, rows, on_rows)
    return {
        **(gates.fields() if gates else {}),
        "logits": logits,
        "lengths": np.array([len(row) for row in rows]),
        "exit_layers": model.exits.layers,
        "shape": ModelShape.of(model),
        "task": task.name,
        "metrics": task.metrics,
        "split": split,
        "model": str(model.name_or_path),
        "source": examples.source,
        "data": examples.digest(),
        "recipe": recipe,
        "max_length": encoder.max_length,
        "batch_size": batch_size or 0,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "precision": own,
        "seconds": round(time.perf_counter() - started, 3),
        "fingerprint": fingerprint,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }


def recorded_logits(engine: Engine, rows: Sequence[Row], on_rows: OnRows | None) -> NDArray[np.float32]:
    """Every exit's logits of rows in their order, by the engine: shaped as those of `exit_logits`."""
    said = []
    for done, answer in enumerate(engine.answer_rows(rows), 1):
        if answer.logits is None:
            raise OfframpError(f"row {done}: {answer.error}")
        said.append(answer.logits)
        if on_rows and (done % ROWS_TOLD == 0 or done == len(rows)):
            on_rows(done, len(rows))
    if not said:
        return np.empty((len(engine.model.exits), 0, engine.model.outputs), np.float32)
    return np.concatenate(said, 1) if engine.model.objective.name == "span" else np.stack(said, 1)


def own_precision(model: MultiExitModel, device: torch.device) -> str:
    """The weights' own, as the engine calls it; on a CPU half precision is computed in single."""
    own = OWN_PRECISION.get(model.dtype, "fp32")
    return "fp32" if (own, device.type) == ("fp16", "cpu") else own


def full_depth(model: MultiExitModel) -> Policy:
    return Fixed(model.exits.layers[-1])


@torch.no_grad()
def exit_logits(
    model: MultiExitModel,
    rows: Sequence[Row],
    encoder: Encoder,
    batch_size: int = 32,
    device: str | torch.device | None = None,
    precision: str | None = None,
    on_rows: OnRows | None = None,
    gates: GateCounting | None = None,
) -> NDArray[np.float32]:
    """Every exit's logits of rows in their order; rows of like length are run together.

    They are (E, N, C) for labels and numbers. For spans they are (E, sum of the rows' lengths, 2): row after row, each
    with its own tokens and no padding. `gates` counts what is kept on the way. The model is left as it was found: its
    mode, and the device it lies on.
    """
    at_home, training = model.device, model.training
    device = torch.device(device) if device is not None else at_home
    by_length = sorted(
        range(len(rows)), key=lambda row: -len(rows[row])
    )  # the longest first: if memory runs out, at once
    spans = model.objective.name == "span"
    ends = np.cumsum([len(row) if spans else 1 for row in rows])  # where each row's logits end
    logits = np.empty((len(model.exits), ends[-1] if len(rows) else 0, model.outputs), dtype=np.float32)
    try:
        model.eval().to(device)
        for start in range(0, len(rows), batch_size):
            numbers = by_length[start : start + batch_size]
            batch: dict[str, Any] = {
                name: tensor.to(device) for name, tensor in encoder.pad([rows[n] for n in numbers]).items()
            }
            with _autocast(device, precision):
                done = model.run(**batch)
            said = torch.stack(done.logits).float().cpu().numpy()  # waits for the device
            if gates is not None and done.gates is not None:
                gates.add(numbers, done.gates)
            if spans:
                for place, number in enumerate(numbers):
                    tokens = len(rows[number])
                    logits[:, ends[number] - tokens : ends[number]] = said[:, place, :tokens]
            else:
                logits[:, numbers] = said
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
