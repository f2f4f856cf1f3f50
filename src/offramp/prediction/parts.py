"""Files in parts: so many rows each, read in their order, answered, and written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from offramp.engine import Engine, Prediction, Text
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Policy
from offramp.prediction.files import open_writer
from offramp.prediction.inputs import ANSWER, answer_cells, kept_cells, kept_name, row_text
from offramp.tasks.rows import Columns
from offramp.tasks.tables import read_table

ERROR = "error"
"""The column beside an answer that says why there is none."""
RESERVED = (*ANSWER, ERROR)
ROWS_PER_PART = 10_000
MOST_LOST = 5
"""Workers over one part."""


@dataclass(frozen=True)
class Source:
    """A file to answer, and which of its columns."""

    name: str
    """Its path below the input folder, with /; of a single file, its name."""
    path: str
    columns: Columns
    size: int
    changed: int
    """When, in nanoseconds: with the size it tells whether this is still the file that was begun."""


class Asked(NamedTuple):
    """One row of a file."""

    text: Text | None
    beside: dict[str, Any]
    error: str | None = None


class Part(NamedTuple):
    """Some rows of a file that follow each other."""

    source: str
    number: int
    rows: list[Asked]
    last: bool
    """Whether the file ends with it."""


class Unreadable(NamedTuple):
    """A file that cannot be read, or not to its end."""

    source: str
    why: str


class Receipt(NamedTuple):
    """What is kept of a part that was written."""

    source: str
    number: int
    rows: int
    last: bool
    failed: int = 0
    first_error: str | None = None


@dataclass(frozen=True)
class Job:
    """What is done with every part, on whatever machine."""

    model: str
    policy: Policy | None
    keep: tuple[str, ...]
    """Columns of the input that stand beside the answers."""
    out: str
    format: str = "jsonl"
    rows_per_part: int = ROWS_PER_PART
    options: dict[str, Any] = field(default_factory=dict)
    """Of the engine."""

    def path(self, source: str, number: int) -> Path:
        """A part's file. In the order of their names, a file's parts are in the order of its rows."""
        return Path(self.out) / source / f"part-{number:06d}.{self.format}"


def read_parts(job: Job, source: Source, done: Collection[int] = ()) -> Iterator[Part | Unreadable]:
    """The parts of a file that are not done yet. Of a file that is damaged, the whole parts before come first."""
    try:
        table = read_table(source.path)
        number = 0
        rows: list[Asked] = []
        for record in table:
            if len(rows) == job.rows_per_part:  # only now it is known that this is not the last part
                if number not in done:
                    yield Part(source.name, number, rows, last=False)
                number, rows = number + 1, []
            beside = kept_cells(record, job.keep, RESERVED)
            try:
                rows.append(Asked(row_text(table, record, source.columns), beside))
            except OfframpError as error:
                rows.append(Asked(None, beside, str(error)))
    except OfframpError as error:
        yield Unreadable(source.name, str(error))
        return
    if number not in done:
        yield Part(source.name, number, rows, last=True)


class Answerer:
    """Answers parts and writes them: the model of one worker."""

    def __init__(self, job: Job, model: MultiExitModel | None = None) -> None:
        self.job = job
        self.engine = Engine(model or job.model, job.policy, **job.options)
        self.columns = (*(kept_name(column, RESERVED) for column in job.keep), *RESERVED)

    def __call__(self, part: Part) -> Receipt:
        """A part's answers in its file. The file has its name only once it is whole."""
        path = self.job.path(part.source, part.number)
        _refuse_deadly(part, path)
        # A name of its own: a worker that was taken for lost may write the same part at the same time.
        written = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}")
        writer = open_writer(written, self.columns)  # before the work: what a killed worker leaves is counted
        try:
            rows = self._answers(part.rows)
            writer.write(rows)
            writer.close()
            with written.open("rb+") as file:
                os.fsync(file)  # the receipt must not outlive the rows
            written.replace(path)
        except OSError as error:
            raise OfframpError(f"{path} could not be written ({error.strerror or error})") from error
        finally:
            written.unlink(missing_ok=True)
        errors = [row[ERROR] for row in rows if row[ERROR] is not None]
        return Receipt(part.source, part.number, len(rows), part.last, len(errors), errors[0] if errors else None)

    def _answers(self, rows: Sequence[Asked]) -> list[dict[str, Any]]:
        answers = iter(self.engine([row.text for row in rows if row.text is not None]))
        return [_answered(row, None if row.text is None else next(answers)) for row in rows]


def _refuse_deadly(part: Part, path: Path) -> None:
    """Workers are started again whenever they are lost; a part that kills them would go on for ever."""
    lost = sum(1 for _ in path.parent.glob(f".{path.stem}-*"))
    if lost >= MOST_LOST:
        raise OfframpError(
            f"{part.source}: {lost} workers were lost over part {part.number}: is there enough memory? Fewer "
            "--workers, or a smaller --batch-size or --rows-per-part, need less"
        )


def _answered(row: Asked, answer: Prediction | None) -> dict[str, Any]:
    if answer is None:
        return {**row.beside, **dict.fromkeys(ANSWER), ERROR: row.error}
    return {**row.beside, **answer_cells(answer), ERROR: answer.error}
