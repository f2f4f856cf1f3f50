"""Rows: packed, masked by the rule, cut after sentences, and the same for the same step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.training.pretraining.course import Course
from offramp.training.pretraining.rows import IGNORED, Layout, RowSource, Words
from tests.training.pretraining.small_corpus import plan

CLS, SEP, MASK, STOP = 2, 3, 4, 5
WORDS = Words(100, CLS, SEP, MASK, special=(0, 1, CLS, SEP, MASK), sentence_ends=(STOP,))


def stream(documents: int = 30, seed: int = 0) -> np.ndarray:
    """Documents of sentences of ten words, each document with a separator after it."""
    draw = np.random.default_rng(seed)
    sentences = draw.integers(6, 100, (documents, 20, 10))
    sentences[..., -1] = STOP
    return np.concatenate([np.append(one.flatten(), SEP) for one in sentences]).astype(np.uint16)


def source(length: int = 32, batch: int = 8, seed: int = 1, **layout: object) -> RowSource:
    return RowSource(stream(), WORDS, Layout(length, batch, **layout), seed)  # type: ignore[arg-type]


def unmasked(rows: object) -> torch.Tensor:
    ids: torch.Tensor = rows.ids.clone()  # type: ignore[attr-defined]
    return ids.scatter_(1, rows.positions, rows.targets)  # type: ignore[attr-defined]


@given(step=st.integers(0, 500), swapping=st.booleans(), seed=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_a_step_is_the_same_whenever_it_is_asked_for(step: int, swapping: bool, seed: int) -> None:
    one, other = source(seed=seed, swapping=swapping), source(seed=seed, swapping=swapping)
    other.step(step + 3)  # in another epoch, perhaps
    left, right = one.step(step), other.step(step)
    assert torch.equal(left.ids, right.ids)
    assert torch.equal(left.positions, right.positions)
    assert torch.equal(left.targets, right.targets)
    assert not torch.equal(left.ids, one.step(step + 1).ids)


def test_an_epoch_takes_every_row_once() -> None:
    rows = source()
    text = [tuple(row.tolist()) for step in range(rows.steps_per_epoch) for row in unmasked(rows.step(step))]
    assert len(set(text)) == len(text) == rows.steps_per_epoch * 8
    assert rows.rows - len(text) < 8  # what does not fill a batch
    again = {
        tuple(row.tolist())
        for step in range(rows.steps_per_epoch)
        for row in unmasked(rows.step(rows.steps_per_epoch + step))
    }
    assert len(again & set(text)) < len(text) / 4  # another offset: other rows


def test_rows_are_cut_end_to_end() -> None:
    tokens = stream()
    row = unmasked(source().fixed(3))
    assert (row[:, 0] == CLS).all()
    assert (row[:, -1] == SEP).all()
    assert row[:, 1:-1].flatten().tolist() == tokens[:90].tolist()


def test_masks_follow_the_rule() -> None:
    rows = [source(length=64, batch=16).step(step) for step in range(60)]
    ids, positions, targets = (torch.cat([getattr(r, n) for r in rows]) for n in ("ids", "positions", "targets"))
    assert positions.shape[1] == round(0.15 * 64)
    assert all(len(set(row.tolist())) == len(row) for row in positions)
    assert not torch.isin(targets, torch.tensor(WORDS.special)).any()
    seen = ids.gather(1, positions)
    share = [(seen == MASK).float().mean(), (seen == targets).float().mean()]
    assert share[0] == pytest.approx(0.8, abs=0.02)
    assert share[1] == pytest.approx(0.1 + 0.1 / 95, abs=0.02)
    assert not torch.isin(seen[seen != MASK], torch.tensor(WORDS.special)).any()
    others = torch.ones_like(ids, dtype=torch.bool).scatter_(1, positions, False)
    assert not (ids[others] == MASK).any()


def test_special_tokens_are_neither_masked_nor_put_in_a_words_place() -> None:
    """Wherever a vocabulary has them, and also in rows that hold little else."""
    special = (50, 51, 52, 53, 54)
    words = Words(100, 50, 51, 52, special=special)
    tokens = np.random.default_rng(0).integers(0, 100, 40_000).astype(np.uint16)
    tokens[np.random.default_rng(1).random(40_000) < 0.9] = 53
    rows = [RowSource(tokens, words, Layout(64, 16), 1).step(step) for step in range(20)]
    ids, positions, targets = (torch.cat([getattr(r, n) for r in rows]) for n in ("ids", "positions", "targets"))
    seen, known = ids.gather(1, positions), torch.tensor(special)
    masked = torch.isin(targets, known)
    assert masked.any()
    assert not masked.all()
    assert torch.equal(seen[masked], targets[masked])
    changed = seen[~masked][seen[~masked] != 52]
    assert not torch.isin(changed, known).any()
    assert {0, 99} <= set(changed.tolist()) | set(targets[~masked].tolist())


def test_halves_are_cut_after_a_sentence_and_swapped_half_of_the_time() -> None:
    rows = source(length=64, batch=16, swapping=True)
    plain = stream()
    for step in range(20):
        batch = rows.step(step)
        for row, types, order in zip(unmasked(batch).tolist(), batch.types.tolist(), batch.order.tolist(), strict=True):
            first = types.index(1)  # the second half starts here; a separator lies before it
            assert types == [0] * first + [1] * (64 - first)
            assert row[0] == CLS
            assert row[first - 1] == row[-1] == SEP
            one, two = row[1 : first - 1], row[first:-1]
            body = two + one if order == 1 else one + two
            assert _is_in(plain, body)
            if order != IGNORED:
                assert (two if order == 1 else one)[-1] == STOP  # what came first in the text ends a sentence
                assert SEP not in body
            else:
                assert SEP in body
    orders = torch.cat([rows.step(step).order for step in range(300)])
    assert orders[orders != IGNORED].float().mean() == pytest.approx(0.5, abs=0.03)


def _is_in(text: np.ndarray, body: list[int]) -> bool:
    windows = np.lib.stride_tricks.sliding_window_view(text, len(body))
    return bool((windows == np.array(body)).all(1).any())


def test_parts_are_dealt_out() -> None:
    rows = source(swapping=True).step(0)
    parts = [rows.part(index, 4) for index in range(4)]
    for name in ("ids", "types", "positions", "targets", "order"):
        together = torch.stack([getattr(part, name) for part in parts], 1).flatten(0, 1)
        assert torch.equal(together, getattr(rows, name))


@pytest.mark.parametrize(
    ("layout", "message"),
    [({"batch": 500}, "rows of 32 tokens, and a step takes 500"), ({"length": 3}, "too short to mask")],
)
def test_what_cannot_be_cut_is_refused(layout: dict[str, int], message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        source(**layout)


@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_long_rows_come_now_and_then_and_to_every_group(groups: int) -> None:
    chosen = plan(steps=200, long_length=60, long_share=0.1, groups=groups)
    course = Course(stream(), WORDS, chosen)
    lengths = [course.rows(step).ids.shape for step in range(200)]
    long = [step for step, shape in enumerate(lengths) if shape[1] == 60]
    assert 14 <= len(long) <= 20
    assert {step % groups for step in long} == set(range(groups))
    assert course.tokens_before(200) == sum(rows * length for rows, length in lengths)
    assert all(rows == 8 * 32 // 60 for rows, length in lengths if length == 60)


def test_rows_ahead_are_the_rows_of_the_steps() -> None:
    course = Course(stream(), WORDS, plan(steps=9))
    with course.read_ahead(3, 9) as ahead:
        for step, rows in enumerate(ahead, start=3):
            assert torch.equal(rows.ids, course.rows(step).ids)


def test_an_error_while_reading_ahead_is_raised_where_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Course(stream(), WORDS, plan(steps=9))

    def fails(step: int) -> object:
        raise OSError("the disk is gone")

    monkeypatch.setattr(course, "rows", fails)
    with course.read_ahead(0, 9) as ahead, pytest.raises(OSError, match="the disk is gone"):
        next(ahead)
