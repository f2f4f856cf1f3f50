"""A user's own data as a task, labels of any kind."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path

from offramp.errors import OfframpError
from offramp.tasks.column_names import find_columns
from offramp.tasks.dev_split import cut_dev
from offramp.tasks.metrics import LABEL_METRICS, NUMBER_METRICS
from offramp.tasks.rows import MINUS_ZERO, Columns, Rows, read_rows
from offramp.tasks.sources import Source, find_sources, place, stem
from offramp.tasks.task import Examples, Task

log = logging.getLogger("offramp")

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
WHOLE = re.compile(r"[-+]?\d+")
NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
MOST_LABELS = 1000


def own_task(
    data: str | Path | None = None,
    *,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    regression: bool | None = None,
    labels: Sequence[str] | None = None,
    written: Sequence[str] | None = None,
    labelled: bool = True,
    metric: str | None = None,
    dev_share: float = 0.1,
    split_seed: int = 0,
    name: str | None = None,
    fingerprint: str | None = None,
) -> Task:
    """A task on a user's own data.

    `data` is a file (CSV, TSV, JSON lines, Parquet), a folder with `train.*`, `dev.*` or `validation.*`, and `test.*`,
    or a hub set (`owner/name`, `owner/name:config`). Columns not named are found by their names. Without training rows,
    to score a model that is there, `labels` (or `regression`) must be given.

    Labels may be of any kind. They are numbered in the order of `labels`; without it, whole numbers by size and others
    by the alphabet. Numbers that are not all whole ones make it regression, unless `regression` says otherwise.
    `written` is how the data writes each of `labels`, where it does otherwise. With `labelled=False` there need not be
    a column of them, nor one of numbers for regression.

    Without a dev split, `dev_share` of the training rows is cut off for one (0: none), each label in proportion, rows
    of the same text together, the same rows for the same `split_seed` everywhere. `fingerprint`, from a task's record,
    makes sure that the rows have not changed since: rows that were trained on would otherwise be scored.
    """
    if not 0 <= dev_share < 1:
        raise OfframpError(f"dev share {dev_share}: expected a share of the training rows, 0 or more and less than 1")
    sources = find_sources(data, dev, test)
    first = next(iter(sources.values()))()
    columns = find_columns(first, text, text_pair, label, needs_label=labelled and set(sources) != {"test"})
    if regression and not labelled and columns.label:
        columns = _without_words(columns, next(iter(sources.values())))

    @cache
    def training_rows() -> Rows:
        if "train" not in sources:
            raise OfframpError(f"{first.source}: no training rows, and no labels given: expected train.* or labels")
        return read_rows(sources["train"](), columns)

    answers = _answers(labels, regression, training_rows)
    as_written = answers if written is None else tuple(written)
    if len(as_written) != len(answers):
        raise OfframpError(f"{len(as_written)} ways to write {len(answers)} labels: expected one for each")
    readers = {split: _reader(source, columns, as_written, split) for split, source in sources.items()}
    cut = {"train", "dev"} & set(sources) == {"train"} and dev_share > 0
    mark = _mark(training_rows(), fingerprint) if cut else None
    if cut:
        by_text = mark != training_rows().fingerprint()
        readers = _cut_off(training_rows(), as_written, dev_share, split_seed, by_text) | {
            split: reader for split, reader in readers.items() if split != "train"
        }
    name = name or stem(next(given for given in (data, dev, test) if given is not None))
    record = {
        "name": name,
        "data": place(data),
        "dev": place(dev),
        "test": place(test),
        "text": columns.text,
        "text_pair": columns.pair,
        "label": columns.label,
        "regression": not answers,
        "labels": list(answers),
        "metric": metric,
        "dev_share": dev_share,
        "split_seed": split_seed,
        "fingerprint": mark,
    }
    record |= {} if written is None else {"written": list(written)}
    record |= {} if labelled else {"labelled": False}
    return Task(name, answers, _metrics(answers, metric), columns.pair is not None, readers, record)


def _without_words(columns: Columns, source: Source) -> Columns:
    """Without the column of labels where none is a number: nobody needs it, and numbers cannot be scored by it."""
    rows = read_rows(source(), columns)
    if rows.labels is None or any(map(NUMBER.fullmatch, rows.labels)):
        return columns
    log.warning("%s: %r holds no numbers: the rows are read without labels", rows.table.source, rows.column)
    return Columns(columns.text, columns.pair)


def _answers(labels: Sequence[str] | None, regression: bool | None, rows: Callable[[], Rows]) -> tuple[str, ...]:
    """The labels in order, none for regression: as given, or else as the training rows say."""
    if labels is not None:
        if labels and regression:
            raise OfframpError("labels are given, and regression is asked for: expected one of them")
        return tuple(labels)
    return () if (_is_regression(rows()) if regression is None else regression) else _labels_of(rows())


def _reader(source: Source, columns: Columns, labels: tuple[str, ...], split: str) -> Callable[[], Examples]:
    def read() -> Examples:
        table = source()
        unlabelled = split == "test" and columns.label not in table.columns
        wanted = Columns(columns.text, columns.pair) if unlabelled else columns
        return read_rows(table, wanted, may_lack_labels=split == "test").examples(labels)

    return read


def _cut_off(
    rows: Rows, labels: tuple[str, ...], share: float, seed: int, by_text: bool
) -> dict[str, Callable[[], Examples]]:
    size = max(1, round(share * len(rows.texts)))
    texts = rows.asked if by_text else None
    train, dev = cut_dev(rows.labels if labels else None, len(rows.texts), size, seed, texts)
    return {"train": lambda: rows.examples(labels, train), "dev": lambda: rows.examples(labels, dev)}


def _mark(rows: Rows, recorded: str | None) -> str:
    """What the rows, and how they are cut, are known by.

    Earlier versions cut row by row, which is the same where no text is there twice. Where one is, their mark is
    another, and what they cut stays as it was: rows that a model was trained on are not to be scored.
    """
    plain = rows.fingerprint()
    now = rows.fingerprint(cut_by_text=True) if len(set(rows.asked)) < len(rows.texts) else plain
    if recorded not in (None, plain, now):
        raise OfframpError(
            f"{rows.table.source} has changed since its dev rows were cut off, so rows trained on could be scored: "
            "bring the old file back, or give a dev file (--dev)"
        )
    return recorded or now


def _is_regression(rows: Rows) -> bool:
    """Whether the labels are numbers, and not all whole. One that is missing among numbers is no class of its own."""
    written = set(rows.labels or ())
    missing = {label for label in written if NOT_FINITE.fullmatch(label)}
    numbers = written - missing
    if missing and numbers and all(map(NUMBER.fullmatch, numbers)):
        row = next(i for i, label in enumerate(rows.labels or ()) if label in missing)
        raise rows.error(
            row,
            f"label {(rows.labels or ())[row]!r} among numbers: expected a number (--classification: it is a label)",
        )
    found = all(map(NUMBER.fullmatch, written)) and not all(map(WHOLE.fullmatch, written))
    if found:
        say = "%s: %r holds numbers that are not whole: the answer is a number (--classification says otherwise)"
        log.warning(say, rows.table.source, rows.column)
    return found


def _labels_of(rows: Rows) -> tuple[str, ...]:
    """The labels there are, in order: as the data set lists them, or by number, or by the alphabet."""
    named = rows.table.label_names.get(str(rows.column))
    written = {"0" if label == MINUS_ZERO else label for label in rows.labels or ()}
    labels = named or tuple(sorted(written, key=_size if all(map(WHOLE.fullmatch, written)) else None))
    where = f"{rows.table.source}: column {rows.column!r}"
    if len(written) < 2:
        raise OfframpError(f"{where} holds {', '.join(map(repr, labels))} alone: expected two labels or more")
    if len(labels) > MOST_LABELS or (len(labels) > 20 and len(labels) > len(rows.texts) / 2):
        raise OfframpError(
            f"{where} holds {len(labels)} labels in {len(rows.texts)} rows: name another column with --label, "
            "or say --regression if the answer is a number"
        )
    return labels


def _size(label: str) -> tuple[Decimal, str]:
    """Of a whole number, however long; `01` comes before `1` everywhere, not in the order of a set."""
    return Decimal(label), label


def _metrics(labels: tuple[str, ...], metric: str | None) -> tuple[str, ...]:
    """The one asked for first. F1 of one label needs two of them; by default it is the mean over the labels."""
    usual = ("accuracy", "macro_f1") if labels else ("spearman", "pearson")
    known = [name for name in LABEL_METRICS if len(labels) == 2 or "f1" not in name or name == "macro_f1"]
    known = known if labels else list(NUMBER_METRICS)
    if metric is None:
        return usual
    if metric not in known:
        raise OfframpError(f"metric {metric!r}: expected one of {', '.join(known)} for this task")
    return (metric, *(name for name in usual if name != metric))
