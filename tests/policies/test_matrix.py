"""What must hold of every policy, whatever it decides by."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.policies import REGISTRY, first_exit, policy_from_json, policy_from_text, select_rows
from tests.policies.matrix import MATRIX, PADDING, SAMPLES, Row

EXITS = 5

rows_of_matrix = pytest.mark.parametrize("row", MATRIX.values(), ids=MATRIX.keys())


@st.composite
def traces(draw: st.DrawFn, row: Row) -> Tensor:
    """Logits on a grid coarse enough that exits agree and disagree, and probabilities repeat; spans are padded."""
    samples, classes = draw(st.integers(1, SAMPLES)), draw(st.sampled_from(row.classes))
    shape = (EXITS, samples, *row.shape(classes))
    values = draw(st.lists(st.integers(-12, 12), min_size=math.prod(shape), max_size=math.prod(shape)))
    trace = torch.tensor(values, dtype=torch.float32).view(shape) * draw(st.sampled_from([0.1, 0.37, 1.0]))
    if row.task == "span":
        for sample in range(samples):
            trace[:, sample, draw(st.integers(1, classes)) :] = PADDING
    return trace


def one_at_a_time(row: Row, trace: Tensor) -> list[int]:
    """The published rule, sample by sample, exit by exit."""
    chosen = []
    for sample in range(trace.shape[1]):
        seen: list[list[float]] = []
        for exit in range(EXITS):
            seen.append(trace[exit, sample].tolist())
            if exit == EXITS - 1 or row.rule(seen, sample):
                chosen.append(exit)
                break
    return chosen


def live(row: Row, trace: Tensor, samples: Tensor) -> list[int]:
    """The policy on a batch that shrinks as rows leave, made of some samples in some order."""
    chosen = torch.full((len(samples),), EXITS - 1)
    inside, state = torch.arange(len(samples)), row.policy.start(samples)
    for exit in range(EXITS - 1):
        leave, state = row.policy.step(exit + 1, trace[exit, samples[inside]], state)
        chosen[inside[leave]] = exit
        inside, state = inside[~leave], select_rows(state, ~leave)
    return chosen.tolist()


@rows_of_matrix
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_batched_is_one_at_a_time_is_live(row: Row, data: st.DataObject) -> None:
    trace = data.draw(traces(row))
    expected = one_at_a_time(row, trace)
    assert first_exit(row.policy, trace, task=row.task).tolist() == expected
    order = data.draw(st.permutations(range(trace.shape[1])))
    company = torch.tensor(order[: data.draw(st.integers(1, len(order)))])
    assert live(row, trace, company) == [expected[sample] for sample in company.tolist()]


@rows_of_matrix
def test_json_round_trip(row: Row) -> None:
    text = json.dumps(row.policy.to_json())
    assert policy_from_json(json.loads(text)) == row.policy


@rows_of_matrix
def test_text_round_trip(row: Row) -> None:
    assert policy_from_text(str(row.policy)) == row.policy


@rows_of_matrix
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_every_precision(row: Row, dtype: torch.dtype) -> None:
    shape = (EXITS, SAMPLES, *row.shape(row.classes[0]))
    trace = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert first_exit(row.policy, trace, task=row.task).tolist() == one_at_a_time(row, trace.float())


@rows_of_matrix
def test_extreme_logits_give_a_decision(row: Row) -> None:
    """No NaN, no overflow, at any finite logit: a decision on such rows is the decision on merely large ones."""
    largest = torch.finfo(torch.float32).max * (0.999 if row.task == "span" else 1.0)  # the smallest of all is padding
    shape = (EXITS, SAMPLES, *row.shape(row.classes[-1]))
    signs = torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(2)).float()
    extreme, large = (first_exit(row.policy, signs * size, task=row.task) for size in (largest, 1e4))
    assert extreme.tolist() == large.tolist()


def test_the_matrix_has_every_policy() -> None:
    def names(policy: object) -> set[str]:
        return {policy.name}.union(*(names(part) for part in getattr(policy, "of", ())))

    assert set().union(*(names(row.policy) for row in MATRIX.values())) == set(REGISTRY)
