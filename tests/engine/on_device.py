"""Rows through CUDA graphs, and what the reference says of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from offramp.engine.graphs import why_not
from offramp.engine.runner import Finished, Packed
from tests.tiny import tiny_batch, tiny_model

ROWS = 60
DEVICE = "cuda"

WHY_NOT = why_not(tiny_model(), DEVICE)
needs_device = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))


def runner(model: Any, policy: Any, **options: Any) -> Any:
    from offramp.engine.graphs import GraphRunner

    return GraphRunner(model, policy, **{"device": DEVICE, "dtype": torch.float32, "budget": 256, **options})


def batch_for(family: str) -> dict[str, torch.Tensor]:
    """Texts of up to 38 tokens."""
    batch = {name: tensor.to(DEVICE) for name, tensor in tiny_batch(ROWS, 38, seed=1).items()}
    if family != "roberta":  # which knows one token type
        batch["token_type_ids"] = (torch.arange(38, device=DEVICE) > 9).long().expand(ROWS, -1).contiguous()
    return batch


def packed(batch: dict[str, torch.Tensor], rows: Any = None) -> Packed:
    rows = np.arange(ROWS) if rows is None else np.asarray(rows)
    mask = batch["attention_mask"].bool().cpu().numpy()[rows]
    types = batch.get("token_type_ids")
    return Packed(
        rows.astype(np.int64),
        mask.sum(1).astype(np.int64),
        batch["input_ids"].cpu().numpy()[rows][mask],
        None if types is None else types.cpu().numpy()[rows][mask],
    )


def gathered(finished: list[Finished], rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Exits and logits in the order of the tickets; every row once."""
    tickets = np.concatenate([part.tickets for part in finished])
    assert sorted(tickets) == list(range(rows))
    order = np.argsort(tickets)
    logits = np.stack([row for part in finished for row in part.logits])
    return np.concatenate([part.exits for part in finished])[order], logits[order]


def run(engine: Any, batch: dict[str, torch.Tensor], split: tuple[int, ...] = (ROWS,)) -> tuple[np.ndarray, np.ndarray]:
    finished, first = [], 0
    for size in split:
        finished += engine.submit(packed(batch, range(first, first + size)))
        first += size
    return gathered(finished + engine.flush())


def check_answers(engine: Any, model: Any, policy: Any, batch: dict[str, torch.Tensor], split: tuple[int, ...]) -> None:
    exits, logits = run(engine, batch, split)
    expected = model.answer(policy, **batch)
    np.testing.assert_array_equal(exits, expected.exit.cpu().numpy())
    np.testing.assert_allclose(logits, expected.logits.float().cpu().numpy(), atol=2e-4)


@contextmanager
def interrupted_at(wait: int) -> Iterator[None]:
    """Ctrl-C while the host waits for the device the so-manieth time."""
    from offramp.engine.graphs.memory import Slot

    real, waits = Slot.wait, []

    def wait_or_stop(self: Any, tick: int) -> None:
        waits.append(tick)
        if len(waits) == wait:
            raise KeyboardInterrupt
        real(self, tick)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slot, "wait", wait_or_stop)
        yield
