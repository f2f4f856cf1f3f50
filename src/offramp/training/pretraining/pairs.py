"""Pairs of texts and how alike they are: what teaches a backbone to look from one text into another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError
from offramp.tasks.column_names import find_columns
from offramp.tasks.rows import read_rows
from offramp.tasks.tables import read_table
from offramp.training.pretraining.rows import StepRows

LENGTH = 64
"""Tokens of a pair, at most: of longer ones the ends are cut off."""
AT_ONCE = 8192


@dataclass(frozen=True)
class PairRows(StepRows):
    """The pairs of one step."""

    types: Tensor  # (B, T), 1 in the second text
    mask: Tensor  # (B, T), 1 where there is a token
    alike: Tensor  # (B,), with mean 0 and variance 1 over all pairs


@dataclass(frozen=True)
class Pairs:
    """All pairs, as tokens."""

    ids: NDArray[np.integer[Any]]  # (N, T)
    first: NDArray[np.integer[Any]]  # (N,), tokens of the first text, special ones included
    total: NDArray[np.integer[Any]]  # (N,), of both
    alike: NDArray[np.floating[Any]]  # (N,)

    @property
    def digest(self) -> str:
        """The same for the same pairs and vocabulary."""
        whole = hashlib.sha256(np.ascontiguousarray(self.ids).tobytes())
        whole.update(self.alike.astype(np.float64).tobytes())
        return whole.hexdigest()[:16]


class PairSource:
    """Deals pairs out to steps: each once an epoch, in an order that follows from the seed and the epoch."""

    def __init__(self, pairs: Pairs, batch_size: int, seed: int) -> None:
        self.pairs = pairs
        self.batch_size = batch_size
        self.seed = seed
        self.steps_per_epoch = len(pairs.ids) // batch_size
        if self.steps_per_epoch < 1:
            raise OfframpError(
                f"there are {len(pairs.ids):,} pairs, and a step takes {batch_size:,}: give more, or take fewer"
            )
        self._epoch: tuple[int, NDArray[np.int64]] | None = None

    def step(self, step: int) -> PairRows:
        """The pairs of the pairs' step number `step` (0-based)."""
        epoch, number = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, np.random.default_rng([self.seed, 4, epoch]).permutation(len(self.pairs.ids)))
        chosen = np.sort(self._epoch[1][number * self.batch_size : (number + 1) * self.batch_size])
        places = np.arange(self.pairs.ids.shape[1])
        mask = places < self.pairs.total[chosen, None]
        types = mask & (places >= self.pairs.first[chosen, None])
        return PairRows(
            torch.from_numpy(self.pairs.ids[chosen].astype(np.int64)),
            torch.from_numpy(types.astype(np.int64)),
            torch.from_numpy(mask.astype(np.int64)),
            torch.from_numpy(self.pairs.alike[chosen].astype(np.float32)),
        )


def read_pairs(path: str | Path, tokenizer: Any) -> Pairs:
    """A table (CSV, TSV, JSON lines, Parquet; compressed or not) of two texts and a number, larger for more alike ones.

    Columns are found by their names, as for any task; the numbers are brought to mean 0 and variance 1.
    """
    table = read_table(path)
    columns = find_columns(table, None, None, None, needs_label=True)
    if columns.pair is None:
        raise OfframpError(f"{path}: pairs need two columns of texts; it has {', '.join(map(repr, table.columns))}")
    examples = read_rows(table, columns).examples(())
    assert examples.pairs is not None
    ids = np.full((len(examples), LENGTH), tokenizer.pad_token_id, dtype=np.int32)
    first, total = np.zeros(len(examples), dtype=np.int32), np.zeros(len(examples), dtype=np.int32)
    for start in range(0, len(examples), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        encoded = tokenizer(examples.texts[part], examples.pairs[part], truncation="longest_first", max_length=LENGTH)
        for row, (tokens, sequence) in enumerate(zip(encoded["input_ids"], encoded.encodings, strict=True), start):
            ids[row, : len(tokens)] = tokens
            total[row] = len(tokens)
            if 1 not in sequence.sequence_ids:
                raise OfframpError(f"{path}: the second text of pair {row + 1} has no words: {examples.pairs[row]!r}")
            first[row] = sequence.sequence_ids.index(1)
    tokenizer.backend_tokenizer.no_truncation()  # or it would be saved with the model
    alike = np.asarray(examples.labels, dtype=np.float64)
    if not alike.std() > 0:
        raise OfframpError(f"{path}: all pairs are equally alike: there is nothing to learn from them")
    return Pairs(ids, first, total, (alike - alike.mean()) / alike.std())
