"""`offramp.fold`: a model folder with gates to a smaller one, in which constant gates are part of the weights."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from offramp.errors import OfframpError
from offramp.interop import load
from offramp.interop.checkpoint import read_json
from offramp.interop.conversion import check_destination, write_folder
from offramp.interop.dialect import Model
from offramp.models.folding import fold as fold_gates
from offramp.models.gate_order import keep_statistics
from offramp.tasks.encoding import Row, text_encoder
from offramp.tasks.squad import window_encoder
from offramp.tasks.task import Task
from offramp.tasks.trained import RECORD, trained_task

ROWS = 2000
CARD = "README.md"


def fold(
    source: str | Path,
    out: str | Path,
    task: Task | None = None,
    *,
    rows: int = ROWS,
    constant: float = 0.0,
    batch_size: int = 64,
    overwrite: bool = False,
) -> Model:
    """Fold the gates that never change on calibration data into the weights, and write the model to `out`.

    What is always off is deleted, what is always on is no longer predicted, and units that are kept together come to
    lie together. On inputs whose gates agree with the calibration data the answers stay the same; look at the others
    with `offramp evaluate`.

    Args:
        source: a model with gates.
        task: where the calibration rows come from, the training split first; default: what the model was trained on.
        rows: how many, drawn at random but always the same.
        constant: count a gate as constant if it differs on no more than this share of the rows.
    """
    destination = Path(out)
    check_destination(destination, overwrite)
    if rows < 1:
        raise OfframpError(f"rows {rows}: gates are folded by what they keep on 1 row or more")
    model = load(source)
    if model.gates is None:
        raise OfframpError(f"{source} has no gates to fold: train one with --recipe ebert")
    task = task or trained_task(model)
    if not task.splits:
        raise OfframpError(f"{task.name} has no rows here to fold the gates by")
    split = task.splits[0]
    chosen, pad, tokenizer = calibration_rows(model, task, split, rows)
    fold_gates(model, keep_statistics(model, batches(chosen, pad, batch_size)), constant)
    about = {"source": str(source), "task": task.name, "split": split, "rows": len(chosen), "constant": constant}
    write_folder(model, tokenizer, destination, texts_of(Path(source), about))
    model.name_or_path = str(destination)
    return model


def calibration_rows(model: Model, task: Task, split: str, rows: int) -> tuple[list[Row], Any, Any]:
    """Some encoded rows of a split, how to pad them, and the tokenizer."""
    draw = random.Random(0)
    if task.spans:
        windows = window_encoder(model)
        questions = task.split(split)
        asked = draw.sample(questions.questions, min(rows, len(questions)))
        return [w.row for w in windows(replace(questions, questions=asked))], windows.pad, windows.tokenizer
    encoder, examples = text_encoder(model), task.split(split)
    numbers = draw.sample(range(len(examples)), min(rows, len(examples)))
    pairs = None if examples.pairs is None else [examples.pairs[number] for number in numbers]
    return encoder([examples.texts[number] for number in numbers], pairs), encoder.pad, encoder.tokenizer


def batches(rows: list[Row], pad: Any, batch_size: int) -> Iterator[Mapping[str, Tensor]]:
    by_length = sorted(rows, key=len)
    for start in range(0, len(rows), batch_size):
        yield pad(by_length[start : start + batch_size])


def texts_of(source: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """What the folder says about its training, with a word on the folding."""
    record = read_json(source / RECORD) if (source / RECORD).is_file() else {}
    texts = {RECORD: json.dumps({**record, "folded": about}, indent=1, ensure_ascii=False) + "\n"}
    if (source / CARD).is_file():
        note = (
            f"\n## Folded\n\nGates that did not change on {about['rows']} rows ({about['task']}, {about['split']}) are "
            "part of the weights: what was always off is deleted.\n"
        )
        texts[CARD] = (source / CARD).read_text(encoding="utf-8") + note
    return texts
