"""Which rows make which step: shuffled, grouped by length, and the same rows however many processes share the step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from offramp.tasks.encoding import Row, TextEncoder
from offramp.tasks.squad import WindowEncoder

STEPS_SORTED_TOGETHER = 50
"""Rows are sorted by length within so many steps' worth of shuffled rows: little padding, and still a good shuffle."""


class GroupedBatches(Sampler[list[int]]):
    """The micro-batches of one process, epoch by epoch.

    A step's rows depend on seed and epoch only. They are dealt out to `processes` × `accumulate` micro-batches, so two
    processes take the same steps as one that accumulates twice. Every step has as many micro-batches; where the last
    step of an epoch has fewer rows than that, some are empty.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        rows_in_step: int,
        *,
        accumulate: int = 1,
        process: int = 0,
        processes: int = 1,
        seed: int = 0,
    ) -> None:
        self.lengths = np.asarray(lengths)
        self.rows_in_step = rows_in_step
        self.accumulate = accumulate
        self.process = process
        self.processes = processes
        self.seed = seed
        self.epoch = 0

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return -(-len(self.lengths) // self.rows_in_step)

    def __len__(self) -> int:
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.step_rows():
            shares = np.array_split(rows, self.accumulate * self.processes)
            for share in shares[self.process :: self.processes]:
                yield share.tolist()

    def step_rows(self) -> list[np.ndarray]:
        """The rows of every step of this epoch, each step's from long to short."""
        draw = np.random.default_rng((self.seed, self.epoch))
        order = draw.permutation(len(self.lengths))
        together = self.rows_in_step * STEPS_SORTED_TOGETHER
        steps = []
        for start in range(0, len(order), together):
            part = order[start : start + together]
            part = part[np.argsort(-self.lengths[part], kind="stable")]
            steps += [part[i : i + self.rows_in_step] for i in range(0, len(part), self.rows_in_step)]
        return [steps[i] for i in draw.permutation(len(steps))]


class EncodedRows(Dataset[int]):
    """Encoded texts and their labels, end to end: a batch is cut out by index."""

    def __init__(self, rows: Sequence[Row], labels: Sequence[Any], kind: str) -> None:
        self.lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.ids = self._joined([row.input_ids for row in rows])
        typed = bool(rows) and rows[0].token_type_ids is not None
        self.types = self._joined([row.token_type_ids or [] for row in rows]) if typed else None
        self.labels = torch.tensor(labels, dtype=torch.float32 if kind == "regression" else torch.long)
        self.kind = kind

    def _joined(self, lists: Iterable[list[int]]) -> NDArray[np.int32]:
        return np.fromiter(chain.from_iterable(lists), np.int32, int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> int:
        return index

    def batch(self, numbers: Sequence[int], pad_id: int, length: int) -> dict[str, Tensor]:
        """The rows of these numbers, padded on the right to a length."""
        rows, places = np.asarray(numbers, dtype=np.int64), np.arange(length)
        real = places < self.lengths[rows, None]  # (B, T)
        at = np.where(real, self.starts[rows, None] + places, 0)
        padded = {
            "input_ids": np.where(real, self.ids[at], pad_id),
            "attention_mask": real,
            **({} if self.types is None else {"token_type_ids": np.where(real, self.types[at], 0)}),
        }
        batch = {name: torch.from_numpy(values.astype(np.int64)) for name, values in padded.items()}
        labels = self.labels[torch.from_numpy(rows)]
        if self.kind == "span":
            return batch | {"start_positions": labels[:, 0], "end_positions": labels[:, 1]}
        return batch | {"labels": labels}


class Collate:
    """Numbers of rows to a batch for the model, padded to what `length` makes of its longest row."""

    def __init__(self, rows: EncodedRows, encoder: TextEncoder | WindowEncoder, length: Callable[[int], int]) -> None:
        self.rows = rows
        self.pad_id = int(encoder.tokenizer.pad_token_id or 0)
        self.length = length

    def __call__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        longest = int(self.rows.lengths[list(numbers)].max(initial=0))
        return self.rows.batch(numbers, self.pad_id, self.length(longest))
