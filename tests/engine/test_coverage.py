"""What a promise covers: a precision and a length of texts."""

from __future__ import annotations

from typing import Any

import pytest

from offramp.engine.coverage import RunAs, cut_to, not_covered
from tests.tiny import tiny_model

RECORDED: dict[str, Any] = {"precision": "fp32", "max_length": 32}


@pytest.mark.parametrize(
    ("data", "now", "said", "options"),
    [
        (RECORDED, RunAs("fp32", 32), None, None),
        (RECORDED, RunAs(), None, None),
        ({}, RunAs("int8", 16), None, None),
        ({"precision": "float32"}, RunAs("fp32", 16), None, None),
        ({"precision": "bfloat16"}, RunAs("bf16", 16), None, None),
        ({"precision": "what", "max_length": "32"}, RunAs("int8", 16), None, None),
        ({"precision": "float32"}, RunAs("int8", 16), ("in fp32", "in int8"), "--precision int8"),
        (RECORDED, RunAs("bf16", 32), ("in fp32", "in bf16"), "--precision bf16"),
        (RECORDED, RunAs("fp32", 16), ("at 32 tokens", "at 16 tokens"), "--max-length 16"),
        (
            RECORDED,
            RunAs("int8", 16),
            ("in fp32 at 32 tokens", "in int8 at 16 tokens"),
            "--precision int8 --max-length 16",
        ),
    ],
)
def test_what_is_covered(data: dict[str, Any], now: RunAs, said: tuple[str, str] | None, options: str | None) -> None:
    found = not_covered(data, now)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert str(found) == f"its promise was made {said[0]}, and nothing is promised {said[1]}"
        assert found.now.options == options


@pytest.mark.parametrize(("asked", "length"), [(None, 24), (16, 16)])
def test_how_an_engine_runs(asked: int | None, length: int) -> None:
    model = tiny_model()
    model.config.max_text_tokens = 24
    assert cut_to(model, asked) == length
    assert RunAs.of(model, device="cpu", max_length=asked, batch_size=4) == RunAs("fp32", length)
    assert RunAs.of(model, device="cpu", precision="bf16").precision == "bf16"
