"""`offramp.calibrate`: a model folder, held-out rows and a promise to the policy that keeps it, in the folder."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offramp.calibration.calibrate import Calibration, Promise, calibrate_trace
from offramp.calibration.certificate import certificate_of
from offramp.calibration.gated import gated_traces
from offramp.calibration.losses import INSTEAD, Cost, F1Gap, Loss, loss_of
from offramp.calibration.refusals import check_limits, check_rows, distinct
from offramp.engine.coverage import RunAs
from offramp.errors import OfframpError
from offramp.evaluation.run import default_splits, evaluate
from offramp.evaluation.trace_base import TraceBase
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.weights_digest import weights_digest
from offramp.policies import policy_from_text
from offramp.shipped import refuse_to_change, resolve
from offramp.tasks.squad import Questions
from offramp.tasks.task import Examples, Task, refuse_no_task
from offramp.tasks.trained import trained_task
from offramp.whole_folder import make_writable

log = logging.getLogger("offramp")

PLOTS = "calibration"
"""The folder in a model folder where the plot lies."""


def calibrate(
    model: MultiExitModel | str | Path,
    task: Task | None = None,
    *,
    max_loss: float | None = None,
    max_cost: float | None = None,
    confidence: float = 0.95,
    consistency: bool = False,
    metric: str | None = None,
    tolerance: float | None = None,
    flops: bool = False,
    method: str = "fixed_sequence",
    bound: str = "exact",
    policy: str | None = None,
    split: str | None = None,
    seed: int = 0,
    out: Path | None = None,
    dry_run: bool = False,
    **how: Any,
) -> Calibration:
    """Find the cheapest policy whose loss is below a limit with some confidence, and write it into the model folder.

    Args:
        model: a model folder. Its `policy.json` is what `predict`, `serve` and `bench` use from then on.
        task: where the held-out rows come from; default: the dev rows of what the model was trained on.
        max_loss: what may be lost, as a share: 0.01 is a point of accuracy or, with `consistency`, one answer in 100.
        max_cost: instead, the share of full depth's layers (of its operations, with `flops`) that may be computed: the
            best policy within that is taken.
        confidence: how sure to be that the promise holds.
        consistency: compare with full depth's answers instead of true ones; needs no labels.
        metric: of which the loss is limited; default: the task's own.
        tolerance: how far a number may be from full depth's to count as the same, with `consistency`.
        method: `fixed_sequence`, `bonferroni`, or `expectation` (on average, instead of with a confidence).
        bound: `exact` (the tightest), `betting`, `hoeffding_bentkus` or `hoeffding`.
        policy: certify this one, and no other.
        split: of the task; default: the first dev split.
        seed: of which rows the policies are looked for on, and which they are tested on.
        out: folder of the trace; default: where `offramp.evaluate` keeps it.
        dry_run: write nothing at all.
        how: `fresh`, `max_length`, `batch_size`, `device`, `precision`, `backend`, `threads`, `limit` and `on_rows` of
            `offramp.evaluate`; the precision is by default that in which an `Engine` would run the model.

    Raises `OfframpError`, and writes nothing, where the rows do not support the promise.

    >>> found = offramp.calibrate("runs/reviews", max_loss=0.01)
    >>> found.policy, found.point.cost
    """
    refuse_no_task(task)
    limit = limit_of(max_loss, max_cost)
    check_limits(limit, confidence, method)
    name = model.name_or_path if isinstance(model, MultiExitModel) else resolve(model)
    if not name or not Path(name).is_dir():
        raise OfframpError(f"{name or 'the model'} is no folder: a calibrated policy is written into the model's")
    folder = Path(name)
    if not dry_run:
        refuse_to_change(folder)
        make_writable(folder, "the policy is written there; copy the model, or say --dry-run")
    opened = model if isinstance(model, MultiExitModel) else load(folder)
    task = task or trained_task(opened)
    split = split or default_splits(task)[0]
    # Whatever is wrong with the wishes is said before the model runs.
    if len(opened.exits.layers) < 2 and opened.gates is None:
        raise OfframpError("the model has one exit: there is nothing to choose from")
    if policy is not None:
        policy_from_text(policy).check(opened.objective.name, opened.exits.layers)
    rows = KnownRows.of(task, split)
    if max_cost is not None:
        loss: Loss = Cost(bound, flops, by_question=rows.kind == "span")
    else:
        loss = loss_of(rows, metric, consistency, tolerance, bound)
    if isinstance(loss, F1Gap) and opened.outputs != 2:
        raise OfframpError(f"F1 can be promised of two labels, not of {opened.outputs}: use {INSTEAD[rows.kind]}")
    if how.get("precision", "auto") == "auto":
        engine = {name: how[name] for name in ("device", "backend", "threads") if name in how}
        how["precision"] = RunAs.of(opened, **engine).precision
    check_rows(opened, task, split)
    once = distinct(task.split(split), how.get("limit"))

    def run(out: Path | None = None) -> TraceBase:
        trace = evaluate(opened, task, split=split, out=out, **how)
        return trace if once is None else trace.take(once)

    trace = run(None if dry_run else out or folder / "evaluation" / split)
    gated = {} if policy else gated_traces(opened, trace, run)
    found = calibrate_trace(trace, Promise(loss, limit, confidence, method), seed=seed, policy=policy, gated=gated)
    # What new rows are compared with is said by the gates that the policy runs with.
    run_with = trace if found.gate_threshold is None else gated[found.gate_threshold]
    certificate = certificate_of(found, run_with, weights_digest(opened))
    found = replace(found, certificate=certificate)
    if dry_run:
        return found
    plots = _draw(found, folder)
    return replace(found, files=(certificate.write(folder), *plots))  # the policy last, when all else is done


@dataclass(frozen=True)
class KnownRows:
    """What is known of rows before a model runs on them."""

    kind: str
    labelled: bool
    metrics: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, split: str) -> KnownRows:
        rows: Examples | Questions = task.split(split)
        labelled = rows.labelled if isinstance(rows, Questions) else rows.labels is not None
        return cls(task.kind, labelled, task.metrics)


def _draw(found: Calibration, folder: Path) -> tuple[Path, ...]:
    """A plot of how the policy was found, where matplotlib is installed."""
    from offramp.calibration.plot import write_plot

    try:
        return (write_plot(found, folder / PLOTS),)
    except OfframpError as error:
        log.warning("no plot: %s", error)
        return ()


def limit_of(max_loss: float | None, max_cost: float | None) -> float:
    given = [limit for limit in (max_loss, max_cost) if limit is not None]
    if len(given) != 1:
        raise OfframpError(
            "say what may be lost (--max-loss 0.01) or what may be computed (--max-cost 0.5): one of the two"
        )
    return given[0]
