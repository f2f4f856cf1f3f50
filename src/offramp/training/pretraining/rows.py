"""Tokens to the rows of a step: packed, masked anew each time, and the same whenever the same step is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.errors import OfframpError

if TYPE_CHECKING:
    from typing_extensions import Self

IGNORED = -100
"""A row of which nobody can say in which order its halves belong."""


@dataclass(frozen=True)
class Words:
    """What masking has to know of a vocabulary."""

    size: int
    cls: int
    sep: int
    mask: int
    special: tuple[int, ...]
    sentence_ends: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepRows:
    """What one step learns from: tensors with one entry for each row, or None for what is not asked."""

    ids: Tensor  # (B, T)

    def part(self, index: int, parts: int) -> Self:
        """Every `parts`-th row: what one process, or one micro-batch, takes."""
        return self._each(lambda values: values[index::parts])

    def first(self, count: int) -> Self:
        return self._each(lambda values: values[:count])

    def to(self, device: torch.device) -> Self:
        """On its way to the device while the last step still runs there."""
        far = device.type == "cuda" and not any(values.is_cuda for values in self.tensors().values())
        pinned = self._each(Tensor.pin_memory) if far else self
        return pinned._each(lambda values: values.to(device, non_blocking=True))

    def tensors(self) -> dict[str, Tensor]:
        return {name: values for name, values in vars(self).items() if values is not None}

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return dataclasses.replace(self, **{name: change(values) for name, values in self.tensors().items()})


@dataclass(frozen=True)
class Rows(StepRows):
    """Packed text with masked words."""

    types: Tensor | None  # (B, T), 1 in the second half of a row; None where rows are whole
    positions: Tensor  # (B, K), the masked places
    targets: Tensor  # (B, K), what stood there
    order: Tensor | None  # (B,), 1 where the halves are swapped, 0 where not, IGNORED where nobody can say


class Layout(NamedTuple):
    """How rows look: their length and number, what is masked, and whether their halves may be swapped."""

    length: int
    batch_size: int
    mask_rate: float = 0.15
    swapping: bool = False


class RowSource:
    """Rows of a corpus, cut end to end from a stream of tokens.

    An epoch starts at an offset of its own and takes the rows in an order of its own; masks are drawn for each step.
    All of it follows from the seed and the number of the step alone, so that a run can go on from any step.
    """

    def __init__(self, tokens: NDArray[np.integer], words: Words, layout: Layout, seed: int) -> None:
        self.tokens = tokens
        self.words = words
        self.layout = layout
        self.seed = seed
        self.width = layout.length - (3 if layout.swapping else 2)
        self.masked = max(1, round(layout.mask_rate * layout.length))
        if self.width <= self.masked:
            raise OfframpError(f"rows of {layout.length} tokens are too short to mask {self.masked} of them")
        self.rows = (len(tokens) - self.width) // self.width
        self.steps_per_epoch = self.rows // layout.batch_size
        if self.steps_per_epoch < 1:
            raise OfframpError(
                f"the text gives {max(self.rows, 0):,} rows of {layout.length} tokens, and a step takes "
                f"{layout.batch_size:,}: give more text, or take smaller batches"
            )
        self._epoch: tuple[int, int, NDArray[np.int64]] | None = None
        ends = np.zeros(words.size, dtype=bool)
        ends[list(words.sentence_ends)] = True
        self._ends_sentence = ends
        self._ordinary = np.setdiff1d(np.arange(words.size), words.special)

    def step(self, step: int) -> Rows:
        """The rows of step number `step` (0-based)."""
        epoch, number = divmod(step, self.steps_per_epoch)
        offset, order = self._in_epoch(epoch)
        size = self.layout.batch_size
        starts = offset + self.width * order[number * size : (number + 1) * size]
        return self._masked(self._cut(starts), np.random.default_rng([self.seed, 2, step]))

    def fixed(self, most: int) -> Rows:
        """Rows from the start of the text, always with the same masks: for scoring."""
        starts = self.width * np.arange(min(self.rows + 1, most), dtype=np.int64)
        return self._masked(self._cut(starts), np.random.default_rng([self.seed, 3]))

    def _in_epoch(self, epoch: int) -> tuple[int, NDArray[np.int64]]:
        if self._epoch is None or self._epoch[0] != epoch:
            draw = np.random.default_rng([self.seed, 1, epoch])
            self._epoch = (epoch, int(draw.integers(self.width)), draw.permutation(self.rows))
        return self._epoch[1:]

    def _cut(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        body: NDArray[np.int64] = self.tokens[starts[:, None] + np.arange(self.width)].astype(np.int64)  # (B, width)
        return body

    def _masked(self, body: NDArray[np.int64], draw: np.random.Generator) -> Rows:
        """Choose the same number of places in each row; of them 80 % become [MASK], 10 % a random word, 10 % stay.

        Special tokens are chosen only where a row has too few others, and stay.
        """
        ids, types, order = self._swapped(body, draw) if self.layout.swapping else (self._whole(body), None, None)
        chance = draw.random(ids.shape, dtype=np.float32)
        chance[np.isin(ids, self.words.special)] = 2  # never chosen
        positions = np.argpartition(chance, self.masked, axis=1)[:, : self.masked]  # (B, K)
        targets = np.take_along_axis(ids, positions, 1)
        kind = draw.random(positions.shape, dtype=np.float32)
        random_words = self._ordinary[draw.integers(len(self._ordinary), size=positions.shape)]
        kind[np.isin(targets, self.words.special)] = 1
        seen = np.where(kind < 0.8, self.words.mask, np.where(kind < 0.9, random_words, targets))
        np.put_along_axis(ids, positions, seen, 1)
        ids_, positions_, targets_ = map(torch.from_numpy, (ids, positions, targets))
        types_, order_ = (None if array is None else torch.from_numpy(array) for array in (types, order))
        return Rows(ids_, types_, positions_, targets_, order_)

    def _whole(self, body: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.pad(body, ((0, 0), (1, 1)), constant_values=((0, 0), (self.words.cls, self.words.sep)))

    def _swapped(
        self, body: NDArray[np.int64], draw: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """[CLS] A [SEP] B [SEP], cut after a sentence near the middle, A and B swapped in half of the rows.

        Rows that reach into another document, or in which no sentence ends, stay in order and are not asked about.
        """
        count, width = body.shape
        chance = draw.random(body.shape, dtype=np.float32)
        middle = np.zeros(width, dtype=bool)
        middle[width // 4 : max(width // 4 + 1, width - width // 4)] = True
        ends = self._ends_sentence[body] & middle
        can_tell = ends.any(1) & ~(body == self.words.sep).any(1)
        cut = 1 + np.where(ends, chance, np.where(middle, chance - 1, -2)).argmax(1)  # (B,), tokens before it
        swap = can_tell & (draw.random(count) < 0.5)
        places = np.arange(width)
        body = np.take_along_axis(body, (places + np.where(swap, cut, 0)[:, None]) % width, 1)
        first = np.where(swap, width - cut, cut)[:, None]  # tokens of what now comes first
        places = np.arange(width + 1)
        ids = np.take_along_axis(body, np.minimum(np.where(places < first, places, places - 1), width - 1), 1)
        ids[places == first] = self.words.sep
        types = np.pad((places > first).astype(np.int64), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
        return self._whole(ids), types, np.where(can_tell, swap, IGNORED).astype(np.int64)


def words_of(tokenizer: object, sentence_ends: Sequence[int] = ()) -> Words:
    """What masking has to know, from a Hugging Face tokenizer."""
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "mask")}
    if missing := [name for name, number in ids.items() if number is None]:
        raise OfframpError(f"the vocabulary has no {missing[0]} token: masked-LM training needs one")
    special = tuple(sorted(set(tokenizer.all_special_ids)))  # type: ignore[attr-defined]
    return Words(len(tokenizer), **ids, special=special, sentence_ends=tuple(sentence_ends))  # type: ignore[arg-type]
