"""`offramp.fold`: a model folder with gates to a smaller one, in which constant gates are part of the weights."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
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
from offramp.shipped import resolve
from offramp.tasks.encoding import Row, TextEncoder, text_encoder
from offramp.tasks.squad import Question, Questions, WindowEncoder, window_encoder
from offramp.tasks.task import Examples, Task
from offramp.tasks.trained import RECORD, trained_task

ROWS = 2000
CARD = "README.md"


def fold(
    source: str | Path,
    out: str | Path,
    task: Task | None = None,
    *,
    texts: Sequence[str] | Sequence[tuple[str, str]] | None = None,
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
        texts: calibration texts, or pairs (of question and context, where the model answers with spans), instead.
        rows: how many, drawn at random but always the same.
        constant: count a gate as constant if it differs on no more than this share of the rows.
    """
    destination = Path(out)
    check_destination(destination, overwrite)
    if rows < 1:
        raise OfframpError(f"rows {rows}: gates are folded by what they keep on 1 row or more")
    if batch_size < 1:
        raise OfframpError(f"batch size must be 1 or more, not {batch_size}")
    model = load(source)
    if model.gates is None:
        raise OfframpError(f"{source} has no gates to fold: train one with --recipe ebert")
    about: dict[str, Any] = {"source": Path(source).name, "constant": constant}
    if texts is None:
        task = task or trained_task(model)
        split = task.splits[0]
        texts = texts_of(task.split(split))
        about |= {"task": task.name, "split": split}
    some = random.Random(0).sample(list(texts), min(rows, len(texts)))
    chosen, encoder = encoded(model, some)
    fold_gates(model, keep_statistics(model, batches(chosen, encoder.pad, batch_size)), constant)
    about["rows"] = len(chosen)
    write_folder(model, encoder.tokenizer, destination, files_of(model, Path(resolve(source)), destination, about))
    model.name_or_path = str(destination)
    return model


def texts_of(rows: Examples | Questions) -> list[Any]:
    """Texts, pairs of texts, or questions with their contexts."""
    if isinstance(rows, Questions):
        return [(one.question, one.context) for one in rows.questions]
    return rows.texts if rows.pairs is None else list(zip(rows.texts, rows.pairs, strict=True))


def encoded(model: Model, texts: Sequence[Any]) -> tuple[list[Row], TextEncoder | WindowEncoder]:
    """Texts as the model's rows: of questions all windows."""
    if model.objective.name == "span":
        windows = window_encoder(model)
        asked = [Question(str(n), first, second, (), (), False) for n, (first, second) in enumerate(texts)]
        questions = Questions(asked, version2=False, source="calibration texts", labelled=False)
        return [window.row for window in windows(questions)], windows
    encoder = text_encoder(model)
    if texts and not isinstance(texts[0], str):
        return encoder([first for first, _ in texts], [second for _, second in texts]), encoder
    return encoder(texts), encoder


def batches(rows: list[Row], pad: Any, batch_size: int) -> Iterator[Mapping[str, Tensor]]:
    by_length = sorted(rows, key=len)
    for start in range(0, len(rows), batch_size):
        yield pad(by_length[start : start + batch_size])


def files_of(model: Model, source: Path, destination: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """What the folder says about its training, with a word on the folding."""
    record = read_json(source / RECORD) if (source / RECORD).is_file() else {}
    files = {RECORD: json.dumps({**record, "folded": about}, indent=1, ensure_ascii=False) + "\n"}
    if (source / CARD).is_file():
        card = (source / CARD).read_text(encoding="utf-8")
        for shown in ("# {}\n", "offramp evaluate {}\n", "offramp predict {} ", "name: {}\n"):
            card = card.replace(shown.format(source.resolve().name), shown.format(destination.resolve().name))
        note = (
            f"\n## Folded\n\nGates that did not change on {about['rows']} rows are part of the weights: what was "
            f"always off is deleted. The scores above are of the model before that ({about['source']}).\n"
        )
        files[CARD] = card + note
    return files
