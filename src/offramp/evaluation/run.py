"""`offramp.evaluate`: a model and a task to a trace, kept beside the model and used again while it is true."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.engine.policy_choice import warn_of_untrained
from offramp.errors import OfframpError
from offramp.evaluation.span_trace import collect_spans
from offramp.evaluation.trace import OnRows, collect, own_precision
from offramp.evaluation.trace_base import TraceBase
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.device import find_device
from offramp.shipped import is_in_the_box
from offramp.tasks.encoding import Row, text_encoder
from offramp.tasks.labels import label_order
from offramp.tasks.squad import Questions, window_encoder
from offramp.tasks.task import Examples, Task, refuse_no_task
from offramp.tasks.trained import recipe_name, trained_task, training_record
from offramp.whole_folder import make_writable

TRACE = "trace.npz"


def evaluate(
    model: MultiExitModel | str | Path,
    task: Task | None = None,
    *,
    split: str | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    max_length: int | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    precision: str | None = None,
    backend: str = "auto",
    threads: int | None = None,
    limit: int | None = None,
    on_rows: OnRows | None = None,
    said: NDArray[np.float32] | None = None,
) -> TraceBase:
    """Ask every exit of a model about every row of a split, once.

    Args:
        model: a model, or what `offramp.load` opens. A folder keeps the trace, in `evaluation/<split>/trace.npz`.
        task: default: what the model was trained on.
        split: default: the first dev split (of MNLI the matched one).
        out: folder to keep the trace in instead.
        fresh: run the model even if a trace of the same weights on the same rows is there.
        max_length: tokens a text is cut to, or a window on a text has where answers are spans; default: as in training.
        device: `auto` is the GPU if there is one.
        precision: `bf16`, `fp16` or `int8` instead of the weights' own.
        backend: as `Engine` takes it, and so `batch_size` and `threads`.
        limit: only the first so many rows, or questions.
        on_rows: told how many rows, or windows, are done, and of how many.
        said: the exits' logits, as in a trace, where they are known already: the model is not run.

    The trace is a `Trace` or, where answers are spans, a `SpanTrace`.

    >>> trace = offramp.evaluate(model, task)
    >>> trace.point("entropy(0.1)").score
    >>> trace.sweep(Entropy).plot()
    """
    refuse_no_task(task)
    given = None if isinstance(model, MultiExitModel) else Path(model)
    opened = model if isinstance(model, MultiExitModel) else load(model)
    warn_of_untrained(opened, range(len(opened.exits)))
    place = place_for(device, precision)
    if precision in ("auto", own_precision(opened, place)):
        precision = None  # asked for by name or not, it is the same trace
    record = training_record(opened)
    task = task or trained_task(opened)
    split = split or default_splits(task)[0]
    examples = first_rows(task.split(split), limit)
    rows, collect_rows = _encoded(opened, task, examples, max_length)
    mark = fingerprint(opened, task, examples, rows, precision)
    keeps = given is not None and given.is_dir() and not is_in_the_box(given)
    folder = Path(out) if out else given / "evaluation" / split if given and keeps else None
    if folder:
        make_writable(folder, "name another with --out")
        if not fresh and (kept := _kept(folder / TRACE, mark)):
            return replace(
                kept, model=str(opened.name_or_path), split=split, source=examples.source, recipe=recipe_name(record)
            )
    trace = collect_rows(
        split=split,
        batch_size=batch_size,
        device=place,
        precision=precision,
        backend=backend,
        threads=threads,
        fingerprint=mark,
        recipe=recipe_name(record),
        on_rows=on_rows,
        said=said,
    )
    if folder:
        trace.save(folder / TRACE)
    return trace


def place_for(device: str, precision: str | None) -> torch.device:
    """The device, where `auto` is one that has the precision: as the engine chooses it."""
    return find_device("cpu" if (device, precision) == ("auto", "int8") else device)


def _encoded(
    model: MultiExitModel, task: Task, examples: Examples | Questions, max_length: int | None
) -> tuple[list[Row], Callable[..., TraceBase]]:
    """What the model is to be run on, and how to make a trace of it."""
    if (model.objective.name == "span") != isinstance(examples, Questions):
        answers = ("a span", "labels or numbers") if model.objective.name == "span" else ("labels or numbers", "spans")
        raise OfframpError(f"the model answers with {answers[0]}, but {task.name} asks for {answers[1]}")
    if isinstance(examples, Questions):
        windows_of = window_encoder(model, max_length)
        windows = windows_of(examples)
        return [window.row for window in windows], partial(collect_spans, model, task, examples, windows, windows_of)
    encoder = text_encoder(model, max_length)
    rows = encoder.examples(examples)
    return rows, partial(collect, model, task, examples, rows, encoder)


def rows_of(model: MultiExitModel, task: Task, split: str, max_length: int | None, limit: int | None) -> list[Row]:
    """The tokens that `evaluate` runs a model on."""
    return _encoded(model, task, first_rows(task.split(split), limit), max_length)[0]


def default_splits(task: Task) -> tuple[str, ...]:
    if not task.dev_splits:
        raise OfframpError(f"{task.name} has no dev split here: it has {', '.join(task.splits)}; choose with --split")
    return task.dev_splits


def first_rows(examples: Examples | Questions, limit: int | None) -> Examples | Questions:
    if limit is not None and limit < 1:
        raise OfframpError(f"limit {limit}: expected 1 row or more")
    if not len(examples):
        raise OfframpError(f"{examples.source}: there are no rows to evaluate on")
    if isinstance(examples, Questions):
        return replace(examples, questions=examples.questions[:limit])
    pairs, labels = examples.pairs, examples.labels
    return replace(
        examples,
        texts=examples.texts[:limit],
        pairs=None if pairs is None else pairs[:limit],
        labels=None if labels is None else labels[:limit],
    )


def fingerprint(
    model: MultiExitModel, task: Task, examples: Examples | Questions, rows: Sequence[Row], precision: str | None
) -> str:
    """Changes with anything that could change a trace: weights, exits, tokens, labels and their order, metrics."""
    mark = hashlib.blake2b(digest_size=16)
    for name, weight in sorted(model.state_dict().items()):
        mark.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        mark.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    mark.update(model.config.to_json_string(use_diff=False).encode())
    order = [] if task.kind == "span" else label_order(model, task)
    asked = [task.name, task.labels, task.metrics, order, examples.digest(), precision]
    if model.gates is not None and model.gates.padding is not None:
        asked.append(f"padded to {len(model.gates.padding) - 1}")
    mark.update(json.dumps([asked, [[row.input_ids, row.token_type_ids] for row in rows]]).encode())
    return mark.hexdigest()


def _kept(path: Path, mark: str) -> TraceBase | None:
    """The trace that lies there, if it is of these weights and rows."""
    try:
        trace = TraceBase.load(path)
    except OfframpError:
        return None
    return trace if trace.fingerprint == mark else None
