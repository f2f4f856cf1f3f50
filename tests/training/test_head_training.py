"""Heads of a frozen model: trained on states that were computed once, as they would be on the model itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.errors import OfframpError
from offramp.recipes import DeeBERT, Frozen, Schedule
from offramp.tasks.encoding import Row, pad_rows
from offramp.training import PhaseGradients, pooled_states
from offramp.training.head_training import train_heads
from offramp.training.pooled_states import batches_by_length
from tests.tiny import FAMILIES, VOCABULARY, tiny_model, without_dropout

ONE_STEP = Schedule(learning_rate=1e-2, epochs=1, batch_size=64)


class Encoder:
    """Pads, and no more."""

    def pad(self, rows: list[Row]) -> dict[str, torch.Tensor]:
        return pad_rows(rows, 0)


def rows(count: int = 40) -> list[Row]:
    draw = np.random.default_rng(0)
    return [Row(draw.integers(4, VOCABULARY, draw.integers(2, 14)).tolist()) for _ in range(count)]


def seen(model: Any, scratch: Path, count: int = 40) -> Any:
    return pooled_states.pooled_states(model, rows(count), Encoder(), scratch / "states")  # type: ignore[arg-type]


HEADS: dict[str, dict[str, Any]] = {
    "labels": {},
    "a number": {"num_labels": 1},
    "means": {"pooling": ["mean", "mean", "max", "first"]},
    "some layers": {"exit_layers": [1, 3, 4]},
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_one_step_is_that_of_the_whole_model(family: str, head: str, tmp_path: Path) -> None:
    """The same gradient as a pass through all layers gives; and the trunk and the last exit stay as they are."""
    model = without_dropout(tiny_model(family, **HEADS[head])).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    [phase] = Frozen(schedule=ONE_STEP).phases(model)
    batch = Encoder().pad(rows())
    with PhaseGradients(model, phase) as gradients:
        gradients.add(batch | {"labels": torch.zeros(40, dtype=torch.long)})
        gradients.finish()
        expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    found: dict[str, torch.Tensor] = {}

    def stop(*_: Any) -> None:
        found.update({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    assert train_heads(model, phase, seen(model, tmp_path), on_step=stop) == 1
    assert found.keys() == expected.keys() == phase.trains
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-6, rtol=1e-3)
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == phase.trains
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_steps_may_end_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    model = tiny_model()
    states, counts = seen(model, tmp_path, 200), list[tuple[int, int]]()
    [phase] = Frozen(schedule=replace(ONE_STEP, max_steps=6)).phases(model)
    assert train_heads(model, phase, states, on_step=lambda done, steps, _: counts.append((done, steps))) == 6
    assert counts == [(done, 6) for done in range(1, 7)]


def test_exits_come_to_say_what_the_last_says(tmp_path: Path) -> None:
    model = tiny_model(pooling=["mean", "mean", "mean", "first"])
    states = seen(model, tmp_path, 200)
    [phase] = Frozen(schedule=replace(ONE_STEP, epochs=30)).phases(model)
    losses: list[float] = []
    steps = train_heads(model, phase, states, on_step=lambda _done, _steps, loss: losses.append(loss))
    assert steps == len(losses) == 30 * 4
    assert np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4])


@pytest.mark.parametrize("head", HEADS)
def test_what_exits_say_of_states_is_what_they_say(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_states, "ROWS_TOGETHER", 7)
    model = tiny_model(**HEADS[head])
    with torch.no_grad():
        expected = torch.stack(model(**Encoder().pad(rows())).exit_logits)
    found = pooled_states.logits_of(model, seen(model, tmp_path))
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)


def test_states_in_a_file_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    here = seen(model, tmp_path)
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr(pooled_states, "IN_MEMORY", 0)
    there = seen(model, tmp_path)
    assert isinstance(there.states, np.memmap)
    assert np.array_equal(here.states, there.states)
    assert np.array_equal(here.last, there.last)


def test_a_disk_that_is_too_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_states, "IN_MEMORY", 0)
    with pytest.raises(OfframpError, match=r"of 9,000,000,000,000 rows takes .* GB, and .* are free in .*: give fewer"):
        pooled_states.room_for((9 * 10**12, 3, 16), tmp_path / "states")
    assert not any(tmp_path.iterdir())


def test_batches_hold_few_tokens_and_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooled_states, "TOKENS_TOGETHER", 30)
    lengths = [5, 40, 2, 7, 30, 7, 7, 7, 7, 1]
    batches = batches_by_length(lengths)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 30 for batch in batches)
    assert batches[0] == [1]


def test_what_else_cannot_be_trained_on_states(tmp_path: Path) -> None:
    model = tiny_model()
    first = DeeBERT().phases(model)[0]
    with pytest.raises(OfframpError, match=r"'fine-tune' trains .*, too: the states would change"):
        train_heads(model, first, seen(model, tmp_path))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_no_such_temperature(temperature: float) -> None:
    with pytest.raises(OfframpError, match="temperature must be more than 0"):
        Frozen(temperature=temperature)
