"""What is not a task yet is refused by every function that takes one, with how to make one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offramp

GIVEN = {
    "new.csv": "write offramp.task(data='new.csv')",
    Path("new.csv"): "write offramp.task(data='new.csv')",
    "rte": "write offramp.task('rte', data_dir=...)",
}
TAKERS: dict[str, Callable[[Any], Any]] = {
    "evaluate": lambda task: offramp.evaluate("runs/reviews", task),
    "calibrate": lambda task: offramp.calibrate("runs/reviews", task, max_loss=0.05),
    "check": lambda task: offramp.check("runs/reviews", task),
    "train": lambda task: offramp.train("offramp-mini", task, "runs/reviews"),
}


@pytest.mark.parametrize("given", GIVEN, ids=repr)
@pytest.mark.parametrize("taker", TAKERS)
def test_a_file_or_a_name_is_no_task(taker: str, given: str | Path) -> None:
    with pytest.raises(offramp.OfframpError) as refused:
        TAKERS[taker](given)
    assert GIVEN[given] in str(refused.value)
