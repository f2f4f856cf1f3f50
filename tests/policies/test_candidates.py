"""What a sweep tries: settings that cover each rule's whole range, whatever the trace."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.policies import (
    REGISTRY,
    Confidence,
    Either,
    Entropy,
    Fixed,
    Patience,
    Policy,
    RuledOut,
    Scripted,
    Threshold,
    Window,
    first_exit,
    policy_from_text,
)
from offramp.policies.threshold import POINTS, spread_thresholds
from tests.policies.matrix import PADDING

THRESHOLDS = [Entropy, Confidence, RuledOut]


def growing_certain(exits: int = 6, samples: int = 300, classes: int = 2) -> Tensor:
    """A trace whose exits become surer from layer to layer."""
    draw = torch.Generator().manual_seed(1)
    return torch.randn(exits, samples, classes, generator=draw) * torch.arange(1, exits + 1)[:, None, None] / 2


def growing_certain_spans(exits: int = 6, samples: int = 300, tokens: int = 9) -> Tensor:
    """The same of spans in windows of 2 to `tokens` tokens, padded: (E, N, T, 2)."""
    trace = growing_certain(exits, samples, 2 * tokens).view(exits, samples, tokens, 2)
    lengths = torch.randint(2, tokens + 1, (samples, 1), generator=torch.Generator().manual_seed(2))
    padding = torch.arange(tokens) >= lengths  # (N, T)
    return trace.masked_fill(padding[..., None], PADDING)


TRACES = {
    "classification": growing_certain(classes=3),
    "regression": growing_certain(classes=1),
    "span": growing_certain_spans(),
}


def costs(
    policies: list[Policy], trace: Tensor, layers: list[int] | None = None, task: str = "classification"
) -> list[float]:
    layers = layers or list(range(1, len(trace) + 1))
    exits = [first_exit(policy, trace, layers, task) for policy in policies]
    return [torch.tensor(layers)[one].float().mean().item() / layers[-1] for one in exits]


@pytest.mark.parametrize(
    ("rule", "task"),
    [(rule, "classification") for rule in THRESHOLDS] + [(Entropy, "span"), (Confidence, "span")],
)
@pytest.mark.parametrize("layers", [[1, 2, 3, 4, 5, 6], [2, 3, 7, 8, 11, 12]])
def test_thresholds_cover_the_whole_curve_evenly(rule: type[Threshold], task: str, layers: list[int]) -> None:
    trace = TRACES[task]
    policies = rule.candidates(trace, layers, task)
    found = costs(policies, trace, layers, task)
    assert found[0] == 1.0
    assert found[-1] == pytest.approx(layers[0] / layers[-1])
    saved = [a - b for a, b in itertools.pairwise(found)]
    step = (found[0] - found[-1]) / (POINTS - 1)
    assert all(step / 4 < one < 2 * step for one in saved)
    assert POINTS - 3 <= len(policies) <= POINTS
    thresholds = [policy.threshold for policy in policies]
    assert thresholds == sorted(set(thresholds), reverse=rule.above)


def test_thresholds_are_readable() -> None:
    policies = Entropy.candidates(growing_certain(), range(1, 7), "classification")
    assert sum(len(str(policy.threshold)) for policy in policies) / len(policies) < 6


def test_thresholds_keep_away_from_what_was_observed() -> None:
    """So that float noise flips no decision."""
    trace = growing_certain(samples=100)
    observed = torch.stack([Entropy(0.0).signal(logits) for logits in trace[:-1]])
    for policy in Entropy.candidates(trace, range(1, 7), "classification")[1:]:
        assert (observed - policy.threshold).abs().min() > 1e-7


NUMBERS = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 0.5]))


@given(st.lists(NUMBERS, min_size=6, max_size=30))
@settings(max_examples=200, deadline=None)
def test_any_signal(numbers: list[float]) -> None:
    """Ascending, unique, finite; the first lets nobody leave early, the last everybody who can."""
    signals = torch.tensor(numbers[: len(numbers) // 3 * 3], dtype=torch.float32).view(3, -1)
    thresholds = spread_thresholds(signals, [1, 2, 3, 4])
    assert all(math.isfinite(one) for one in thresholds)
    assert thresholds == sorted(set(thresholds))
    if thresholds:
        lowest = signals.double().nan_to_num(math.inf, math.inf, -math.inf).cummin(0).values
        lowest = lowest[torch.isfinite(lowest)]
        assert not (lowest < thresholds[0]).any()
        assert (lowest < thresholds[-1]).all()


@pytest.mark.parametrize(
    "trace",
    [
        torch.zeros(4, 5, 2),
        torch.zeros(4, 1, 3),
        torch.full((4, 5, 2), math.nan),
        torch.full((3, 2, 2), 1e38) * torch.tensor([1.0, -1.0]),
        torch.randn(1, 5, 2),
        torch.randn(2, 1, 2),
    ],
    ids=["ties", "one sample", "NaN", "extreme", "one exit", "two exits"],
)
@pytest.mark.parametrize("rule", REGISTRY.values(), ids=REGISTRY.keys())
def test_odd_traces(rule: type[Policy], trace: Tensor) -> None:
    layers = list(range(1, len(trace) + 1))
    for policy in rule.candidates(trace, layers, "classification"):
        assert 0 <= int(first_exit(policy, trace, layers).max()) < len(trace)


@pytest.mark.parametrize("rule", REGISTRY.values(), ids=REGISTRY.keys())
@pytest.mark.parametrize("task", TRACES)
def test_candidates_and_papers_can_be_run_typed_and_told_apart(rule: type[Policy], task: str) -> None:
    if task not in rule.tasks:
        return
    trace = TRACES[task]
    for policies in (rule.candidates(trace, range(1, 7), task), rule.from_papers(task)):
        assert len(set(map(str, policies))) == len(policies)
        assert len({policy.curve for policy in policies}) <= 1
        for policy in policies:
            first_exit(policy, trace, range(1, 7), task)
            assert policy_from_text(str(policy)) == policy


def test_what_is_swept() -> None:
    trace = growing_certain(exits=4)
    assert Fixed.candidates(trace, [2, 4, 6, 6], "classification") == [Fixed(2), Fixed(4), Fixed(6)]
    assert Patience.candidates(trace, range(1, 5), "classification") == [Patience(1), Patience(2), Patience(3)]
    assert Patience.candidates(TRACES["span"], range(1, 5), "span") == [Patience(1), Patience(2), Patience(3)]
    assert len(Window.candidates(trace, range(1, 5), "classification")) == 3 * 3
    assert Scripted.candidates(trace, range(1, 5), "classification") == []
    stages = Either.candidates(trace, range(1, 5), "classification")
    assert {policy.curve for policy in stages} == {"entropy | window"}
    found = costs(stages, trace)
    assert min(found) == 0.25
    assert max(found) > 0.7


def test_tolerances_cover_the_range_of_each_patience() -> None:
    trace = growing_certain(classes=1)
    policies = Patience.candidates(trace, range(1, 7), "regression")
    assert {policy.patience for policy in policies} == {1, 2, 3, 4}  # a fifth exit in a row is the last one
    for patience in range(1, 5):
        own = [policy for policy in policies if policy.patience == patience]
        exits = [first_exit(policy, trace, task="regression") for policy in own]
        assert (exits[0] == 5).all()
        assert (exits[-1] == patience).all()


def test_the_papers_lists() -> None:
    assert [p.threshold for p in Entropy.from_papers("classification")][-3:] == [0.5, 0.6, 0.7]
    assert Entropy.from_papers("span") == Patience.from_papers("span") == []  # nobody has published any
    assert Patience.from_papers("regression")[0] == Patience(2, 0.94)
    assert Either.from_papers("classification")[0] == Entropy(0.9, normalised=True) | Window(8)
    assert [p.size for p in Window.from_papers("classification")] == list(range(2, 13))
