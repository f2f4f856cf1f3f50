"""Files or folders of tables to a folder of answers, here or on many machines, and again from where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from offramp.engine.policy_choice import folder_policy, policy_for
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.models.weights_digest import weights_digest
from offramp.prediction.inputs import columns_of
from offramp.prediction.part_folder import MANIFEST, RECEIPTS
from offramp.prediction.parts import Answerer, Job, Receipt, Source, Unreadable, read_parts
from offramp.tasks.tables import read_table, table_format

Missing = Sequence[tuple[Source, frozenset[int]]]
"""Files to answer, each with the numbers of its parts that are there already."""
Run = Callable[[Job, Missing], Iterable[Receipt | Unreadable]]
"""Answers and writes what is missing; says of each part that it is there, in whatever order."""


def answer_here(job: Job, missing: Missing, model: MultiExitModel | None = None) -> Iterator[Receipt | Unreadable]:
    """In this process, one part after the other."""
    answer = Answerer(job, model)
    for source, done in missing:
        for part in read_parts(job, source, done):
            yield part if isinstance(part, Unreadable) else answer(part)


def find_files(input: Path, out: Path) -> tuple[dict[str, Path], list[Path]]:
    """The tables at a place, by the names that their answers go by; and the files that are none.

    What begins with . or _ is neither: such files are notes of other programs.
    """
    if input.is_file():
        return {input.name: input}, []
    if not input.is_dir():
        raise OfframpError(f"{input} does not exist: name a file, or a folder of CSV, TSV, JSONL or Parquet files")
    if out.resolve().is_relative_to(input.resolve()):
        raise OfframpError(f"{out} lies in the input: name another folder for the answers")
    tables: dict[str, Path] = {}
    others = []
    for path in sorted(input.rglob("*")):
        below = path.relative_to(input)
        if not path.is_file() or any(name.startswith((".", "_")) for name in below.parts):
            continue
        try:
            table_format(path)
            tables[below.as_posix()] = path
        except OfframpError:
            others.append(path)
    if taken := {MANIFEST, RECEIPTS} & tables.keys():
        raise OfframpError(f"{tables[min(taken)]} is called as a file that the answers come with: rename it")
    if not tables:
        raise OfframpError(f"{input} holds no CSV, TSV, JSONL or Parquet files")
    return tables, others


def sources_of(
    files: dict[str, Path], model: MultiExitModel, text: str | None, pair: str | None, keep: Sequence[str]
) -> tuple[list[Source], list[Unreadable]]:
    """The files with the columns that are to be answered, and those that cannot be read at all.

    A file that has other columns is refused before any is answered.
    """
    found, unreadable = [], []
    for name, path in files.items():
        try:
            table = read_table(path)
        except OfframpError as error:
            unreadable.append(Unreadable(name, str(error)))
            continue
        columns = columns_of(table, model, text, pair)
        for column in keep:
            table.require(column, "--keep")
        about = path.stat()
        found.append(Source(name, str(path.absolute()), columns, about.st_size, about.st_mtime_ns))
    return found, unreadable


def settings_of(job: Job, model: MultiExitModel, text: str | None, pair: str | None) -> dict[str, Any]:
    """What answers, and how they are written, depend on."""
    own = folder_policy(Path(model.name_or_path)) if job.policy is None and model.name_or_path else None
    return {
        "weights": weights_digest(model),
        "policy": str(policy_for(model, job.policy)),
        "gate threshold": own[1] if own else None,
        **{name.replace("_", " "): job.options.get(name) for name in ("max_length", "device", "precision", "backend")},
        "text": text,
        "text pair": pair,
        "keep": list(job.keep),
        "format": job.format,
        "rows per part": job.rows_per_part,
    }
