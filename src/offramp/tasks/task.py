"""What a task is: a question asked of texts, the answers there are, and where its rows come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError


@dataclass(frozen=True)
class Examples:
    """The rows of one split, in the order of their file."""

    texts: list[str]
    pairs: list[str] | None
    """The second text of each row, for tasks on pairs."""
    labels: list[int] | list[float] | None
    """The number of each row's label in `Task.labels`, or the number itself in regression; None where unlabelled."""
    source: str
    """The file or hub set they come from."""

    def __len__(self) -> int:
        return len(self.texts)

    def digest(self) -> str:
        """The same for the same texts and labels, and for no others."""
        rows = json.dumps([self.texts, self.pairs, self.labels])
        return hashlib.blake2b(rows.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Task:
    """A question asked of texts or pairs of texts."""

    name: str
    labels: tuple[str, ...]
    """The answers, in index order; none means that the answer is a number or a span."""
    metrics: tuple[str, ...]
    """Names in `offramp.tasks.metrics`; the first is *the* score."""
    pair: bool
    readers: Mapping[str, Callable[[], Any]] = field(repr=False, compare=False)
    """How to read each split: `train`, `dev`, `test`; MNLI has `dev_matched`, `dev_mismatched` and so on.

    They give `Examples`, or `squad.Questions` where the answers are spans.
    """
    record: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What `offramp.task(**record)` needs to make this task again: plain JSON."""
    spans: bool = False
    """Whether the answers are spans of the second text (SQuAD)."""

    @property
    def kind(self) -> str:
        """`classification`, `regression` or `span`."""
        if self.spans:
            return "span"
        return "classification" if self.labels else "regression"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.readers)

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """The splits to score on: one, or MNLI's two."""
        return tuple(split for split in self.readers if split.startswith("dev"))

    def split(self, name: str) -> Any:
        """Read one split: `Examples`, or `squad.Questions` where answers are spans."""
        if name not in self.readers:
            raise OfframpError(f"{self.name} has no split {name!r} here: it has {', '.join(self.readers) or 'none'}")
        return self.readers[name]()


def refuse_no_task(given: object) -> None:
    """A file, or a task's name, is not yet a task: say how one is made of it."""
    if given is None or isinstance(given, Task):
        return
    text = str(given)
    is_file = isinstance(given, Path) or "." in text or "/" in text
    how = f"offramp.task(data={text!r})" if is_file else f"offramp.task({text!r}, data_dir=...)"
    raise OfframpError(f"task={text!r}: expected a task, not a {type(given).__name__}: write {how}")
