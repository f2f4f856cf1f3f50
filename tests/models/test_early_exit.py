"""Answering under a policy: live is the trace, and company changes nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp import OfframpError
from offramp.policies import Confidence, Entropy, Fixed, Patience, Scripted, first_exit
from tests.exiting_models import BATCH, MODELS, TRACES
from tests.policies.matrix import MATRIX, SAMPLES, Row
from tests.tiny import FAMILIES, rows_of, tiny_batch, tiny_model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("row", MATRIX.values(), ids=MATRIX.keys())
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_live_is_the_trace_in_any_company(row: Row, family: str, data: st.DataObject) -> None:
    model, trace = MODELS[family, row.task], TRACES[family, row.task]
    expected = first_exit(row.policy, trace, task=row.task)
    order = data.draw(st.permutations(range(SAMPLES)))
    samples = torch.tensor(order[: data.draw(st.integers(1, SAMPLES))])
    answer = model.answer(row.policy, **rows_of(BATCH, samples), samples=samples)
    assert answer.exit.tolist() == expected[samples].tolist()
    assert answer.exit_layer.tolist() == (expected[samples] + 1).tolist()
    stored = trace[expected[samples], samples][:, : answer.logits.shape[1]]  # of spans, the padding of others cut off
    torch.testing.assert_close(answer.logits, stored, rtol=1e-4, atol=1e-4)


def test_the_traces_are_worth_testing_on() -> None:
    """Rows leave early, late and in between, on every backbone: else the test above shows nothing."""
    for (_, task), trace in TRACES.items():
        if task == "classification":
            assert len(first_exit(Entropy(0.4131), trace).unique()) > 2
        if task == "span":
            for policy in (Entropy(0.6131), Confidence(0.5317), Patience(1)):
                assert len(first_exit(policy, trace, task="span").unique()) > 1, policy


def test_no_layer_is_computed_for_a_row_that_has_left() -> None:
    model, rows = MODELS["bert", "classification"], []
    hooks = [
        model.backbone.layer_module(index).register_forward_hook(lambda m, args, out: rows.append(len(args[0])))
        for index in range(5)
    ]
    model.answer(Scripted((1, 1, 2, 5, 2, 1, 3, 1)), **BATCH)
    model.answer(Fixed(2), **BATCH)
    for hook in hooks:
        hook.remove()
    assert rows == [8, 4, 2, 1, 1, 8, 8]


def test_two_exits_on_the_last_layer() -> None:
    model = tiny_model(layers=3, exit_layers=[1, 2, 3, 3])
    answer = model.answer(Scripted((1, 2, 3, 3, 9, 9)), **tiny_batch())
    assert answer.exit.tolist() == [0, 1, 2, 2, 3, 3]
    assert answer.exit_layer.tolist() == [1, 2, 3, 3, 3, 3]


def test_a_policy_that_makes_no_sense_is_refused_before_anything_runs() -> None:
    with pytest.raises(OfframpError, match="entropy makes no sense for regression"):
        MODELS["bert", "regression"].answer(Entropy(0.1), **BATCH)
