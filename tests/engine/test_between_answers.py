"""Between two answers torch and the model are the caller's, and afterwards they are as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from offramp import OfframpError
from offramp.engine import Engine, Row
from offramp.models import MultiExitModel
from tests.tiny import tiny_model

ROWS = [Row([5, 6, 7]), Row([8, 9]), Row([4, 5, 6, 7])]


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def engine_of(model: MultiExitModel, backend: str = "torch") -> Engine:
    engine = Engine(model, "fixed(3)", "cpu", "fp32", backend, threads=1)
    engine.window = 2  # a stream, not a list that is answered at once
    return engine


def assert_the_callers(model: MultiExitModel, trained: set[str]) -> None:
    assert torch.get_num_threads() == 2
    assert torch.backends.mkldnn.enabled
    assert {name for name, module in model.named_modules() if module.training} == trained


def half_trained(**options: float) -> tuple[MultiExitModel, set[str]]:
    """A model whose backbone stands still while its exits are trained."""
    model = tiny_model("bert", **options)
    model.train()
    model.backbone.eval()
    return model, {name for name, module in model.named_modules() if module.training}


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_in_the_midst_of_a_stream(backend: str) -> None:
    model, trained = half_trained()
    for _ in engine_of(model, backend).answer_rows(iter(ROWS)):
        assert_the_callers(model, trained)
    assert_the_callers(model, trained)


def test_two_streams_side_by_side() -> None:
    """Each ends when it likes, and the other goes on without dropout."""
    model, trained = half_trained(exit_dropout=0.5)
    one, other = engine_of(model), engine_of(model)
    expected = [answer.logits for answer in one.answer_rows(ROWS * 20)]
    pairs = zip(one.answer_rows(iter(ROWS[:2])), other.answer_rows(iter(ROWS * 20)), strict=False)
    for number, (left, right) in enumerate(pairs):
        np.testing.assert_array_equal(left.logits, expected[number])
        np.testing.assert_array_equal(right.logits, expected[number])
    assert_the_callers(model, trained)


def test_a_stream_that_is_closed_in_another_thread() -> None:
    model, trained = half_trained()
    stream = engine_of(model).answer_rows(iter(ROWS * 20))
    next(stream)
    closing = threading.Thread(target=stream.close)  # type: ignore[attr-defined]
    closing.start()
    closing.join()
    assert_the_callers(model, trained)


def test_the_reference_leaves_what_stands_still_alone() -> None:
    model, trained = half_trained()
    model.answer(engine_of(model).policy, torch.tensor([[5, 6, 7]]))
    assert_the_callers(model, trained)


def test_an_engine_of_fp32_answers_in_fp32_wherever_it_is_called() -> None:
    engine = engine_of(tiny_model("bert"))
    expected = [answer.logits for answer in engine.answer_rows(ROWS)]
    with torch.autocast("cpu", torch.bfloat16):
        for answer, right in zip(engine.answer_rows(ROWS), expected, strict=True):
            np.testing.assert_array_equal(answer.logits, right)


def test_an_engine_that_records_answers_rows_alone() -> None:
    engine = Engine(tiny_model("bert"), device="cpu", backend="torch", record=True)
    with pytest.raises(OfframpError, match="use answer_rows"):
        engine(["a text"])
