"""A calibrated model folder and new rows to a check of its promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offramp.calibration.certificate import read_certificate, refuse_incomplete
from offramp.calibration.drift import Check, check_promise, check_weights
from offramp.calibration.gated import under_threshold
from offramp.calibration.refusals import check_rows, distinct
from offramp.engine.coverage import RunAs, cut_to
from offramp.errors import OfframpError
from offramp.evaluation.run import default_splits, evaluate, place_for
from offramp.evaluation.trace import Trace, own_precision
from offramp.evaluation.trace_base import TraceBase
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.weights_digest import weights_digest
from offramp.shipped import resolve
from offramp.tasks.task import Task, refuse_no_task


def check(
    model: MultiExitModel | str | Path, task: Task, *, split: str | None = None, again: str | None = None, **how: Any
) -> Check:
    """Test whether the promise in a model folder's `policy.json` holds on new rows, with labels or without.

    Args:
        model: a model folder that was calibrated, or the model in it.
        task: where the new rows come from.
        split: of the task; default: the first dev split.
        again: the command that calibrates on these rows, less what the promise says; for the advice.
        how: `out`, `fresh`, `max_length`, `batch_size`, `device`, `precision`, `backend`, `threads`, `limit` and
            `on_rows` of `offramp.evaluate`; precision and length are by default those of the calibration.
    """
    refuse_no_task(task)
    folder = Path((model.name_or_path or ".") if isinstance(model, MultiExitModel) else resolve(model))
    certificate = read_certificate(folder)
    refuse_incomplete(certificate, folder)
    opened = model if isinstance(model, MultiExitModel) else load(folder)
    check_weights(certificate, weights_digest(opened))
    certificate.policy.check(opened.objective.name, opened.exits.layers)
    split = split or default_splits(task)[0]
    check_rows(opened, task, split)
    then = RunAs.certified(certificate.data)
    how["precision"] = then.precision if how.get("precision") in (None, "auto") else how["precision"]
    how["max_length"] = how.get("max_length") or then.max_length
    once = distinct(task.split(split), how.get("limit"))

    def run(**changes: Any) -> TraceBase:
        trace = evaluate(opened, task, split=split, **how | changes)
        return trace if once is None else trace.take(once)

    trace = run()
    if certificate.gate_threshold is not None:
        if opened.gates is None or not isinstance(trace, Trace):
            raise OfframpError("the certificate is of a model with gates, and this one has none: calibrate again")
        trace = under_threshold(opened, trace, certificate.gate_threshold, lambda: run(out=None))
    again = again or f"offramp calibrate {folder} --data NEW_DATA"
    return check_promise(trace, certificate, " ".join(filter(None, [again, _options(opened, trace)])))


def _options(model: MultiExitModel, trace: TraceBase) -> str:
    """How to calibrate as these rows were run, where that is not what `offramp calibrate` does unasked."""
    runs = RunAs.certified(vars(trace))
    precision = None if runs.precision == own_precision(model, place_for("auto", None)) else runs.precision
    return RunAs(precision, None if runs.max_length == cut_to(model, None) else runs.max_length).options
