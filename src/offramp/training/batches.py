"""Which rows make which step: shuffled, grouped by length, and the same rows however many processes share the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from offramp.models import MultiExitModel
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


class EncodedRows(Dataset[tuple[Row, Any]]):
    """Encoded texts and their labels."""

    def __init__(self, rows: Sequence[Row], labels: Sequence[Any]) -> None:
        self.rows = rows
        self.labels = labels

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Row, Any]:
        return self.rows[index], self.labels[index]


class Collate:
    """Rows and labels to a batch for the model."""

    def __init__(self, encoder: TextEncoder | WindowEncoder, model: MultiExitModel) -> None:
        self.encoder = encoder
        self.kind = model.objective.name

    def __call__(self, items: Sequence[tuple[Row, Any]]) -> dict[str, Tensor]:
        batch = self.encoder.pad([row for row, _ in items])
        if self.kind == "span":
            ends = torch.tensor([label for _, label in items], dtype=torch.long).view(-1, 2)
            return batch | {"start_positions": ends[:, 0], "end_positions": ends[:, 1]}
        dtype = torch.float32 if self.kind == "regression" else torch.long
        return batch | {"labels": torch.tensor([label for _, label in items], dtype=dtype)}
