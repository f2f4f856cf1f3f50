"""Which rows make which step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offramp.tasks.encoding import Row, pad_rows
from offramp.training.batches import Collate, EncodedRows, GroupedBatches


def batches(rows: int, in_step: int, **options: int) -> GroupedBatches:
    lengths = np.random.default_rng(3).integers(3, 60, rows).tolist()
    return GroupedBatches(lengths, in_step, **options)


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_every_row_once_an_epoch(rows: int, in_step: int, accumulate: int, processes: int, epoch: int) -> None:
    seen: list[int] = []
    for process in range(processes):
        sampler = batches(rows, in_step, accumulate=accumulate, process=process, processes=processes)
        sampler.epoch = epoch
        dealt = list(sampler)
        assert len(dealt) == len(sampler) == sampler.steps * accumulate
        seen += [row for batch in dealt for row in batch]
    assert sorted(seen) == list(range(rows))


@given(st.integers(1, 100), st.integers(1, 20))
def test_two_processes_take_the_steps_of_one_that_accumulates(rows: int, in_step: int) -> None:
    def step_rows(accumulate: int, processes: int) -> list[list[int]]:
        shares = [
            list(batches(rows, in_step, accumulate=accumulate, process=process, processes=processes))
            for process in range(processes)
        ]
        steps = len(shares[0]) // accumulate
        return [
            sorted(row for share in shares for batch in share[s * accumulate : (s + 1) * accumulate] for row in batch)
            for s in range(steps)
        ]

    assert step_rows(4, 1) == step_rows(2, 2) == step_rows(1, 4)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    first = batches(100, 10)
    order = list(first)
    assert list(batches(100, 10)) == order
    assert list(batches(100, 10, seed=1)) != order
    first.epoch = 1
    assert list(first) != order


def test_rows_of_a_step_are_of_like_length() -> None:
    """Padding to the longest of a step costs little, and the steps still come in random order of length."""
    sampler = batches(3000, 10)
    lengths = [sampler.lengths[rows] for rows in sampler.step_rows()]
    padded, real = sum(len(step) * step.max() for step in lengths), sum(step.sum() for step in lengths)
    assert padded / real < 1.05
    longest = [step.max() for step in lengths]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.2  # a long step is not followed by a long one


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_step_with_fewer_rows_than_micro_batches(rows: int) -> None:
    dealt = list(batches(rows, 8, accumulate=4))
    assert [len(batch) for batch in dealt] == [1] * rows + [0] * (4 - rows)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("kind", ["classification", "regression", "span"])
def test_a_batch_is_what_padding_its_rows_gives(kind: str, typed: bool) -> None:
    rows = [Row(list(range(5, 5 + n)), [0] * (n - 1) + [1] if typed else None) for n in (3, 1, 7, 4)]
    labels: list[Any] = {"classification": [0, 2, 1, 1], "regression": [0.5, 1, 2, -3.25]}.get(
        kind, [(0, 1), (0, 0), (2, 6), (1, 3)]
    )
    encoder: Any = SimpleNamespace(tokenizer=SimpleNamespace(pad_token_id=9))
    collate = Collate(EncodedRows(rows, labels, kind), encoder, lambda longest: longest)
    for numbers in ([2, 0], [1], [3, 1, 0, 2]):
        batch = collate(numbers)
        for name, values in pad_rows([rows[number] for number in numbers], 9).items():
            assert torch.equal(batch.pop(name), values)
        found = torch.stack(list(batch.values()), -1).squeeze(-1)
        assert found.tolist() == [list(labels[n]) if kind == "span" else labels[n] for n in numbers]
        assert found.dtype == (torch.float32 if kind == "regression" else torch.int64)
    assert collate([])["input_ids"].shape == (0, 0)
