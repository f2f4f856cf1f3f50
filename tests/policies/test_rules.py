"""What single rules promise, and what they refuse."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp import OfframpError
from offramp.policies import (
    REGISTRY,
    Confidence,
    Entropy,
    Fixed,
    Patience,
    Policy,
    RuledOut,
    Scripted,
    Threshold,
    Window,
    entropy,
    first_exit,
    policy_from_json,
    policy_from_text,
)
from tests.tiny import tiny_batch, tiny_model


def trace_of(probabilities: list[list[float]]) -> torch.Tensor:
    """One sample's probabilities at each exit, as a trace (E, 1, C)."""
    return torch.tensor(probabilities).log().unsqueeze(1)


@pytest.mark.parametrize(
    ("largest", "nats"), [(0.6, 0.673), (0.8, 0.500), (0.9, 0.325), (0.99, 0.056), (0.999, 0.0079)]
)
def test_entropy_of_two_classes(largest: float, nats: float) -> None:
    found = entropy(torch.tensor([largest, 1 - largest]).log())
    assert found.item() == pytest.approx(nats, abs=6e-4)


@pytest.mark.parametrize("size", [1.0, 88.0, 1e3, 1e30, torch.finfo(torch.float32).max])
def test_entropy_is_finite_and_bounded(size: float) -> None:
    logits = torch.tensor([[size, -size, 0.0], [size, size, -size], [-size, -size, -size]])
    found = entropy(logits)
    assert bool(((found >= 0) & (found <= math.log(3) + 1e-6)).all())
    assert found[2].item() == pytest.approx(math.log(3))


def test_never_and_always() -> None:
    trace = torch.randn(4, 7, 2)
    for threshold, exit in ((-1.0, 3), (0.0, 3), (0.7, 0)):  # 0.7 > ln 2
        assert first_exit(Entropy(threshold), trace).tolist() == [exit] * 7


def test_on_the_line_is_not_over_it() -> None:
    even = torch.zeros(3, 1, 2)
    assert first_exit(Entropy(entropy(even[0]).item()), even).item() == 2
    assert first_exit(Confidence(0.5), even).item() == 2
    assert first_exit(RuledOut(0.5), even).item() == 2
    steps = torch.tensor([0.0, 1.0, 2.0]).view(3, 1, 1)
    assert first_exit(Patience(1, tolerance=1.0), steps, task="regression").item() == 2
    quarter_apart = torch.tensor([[[0.75, 0.25], [1.0, 0.0]]])  # (1, 2, 2)
    assert Window(2, "stable", range=0.25).settled(quarter_apart).item()
    assert not Window(2, margin=0.25).settled(quarter_apart).item()


def test_decisions_are_taken_in_float32() -> None:
    logits = torch.tensor([[[2.0, -2.0]], [[0.0, 0.0]]], dtype=torch.bfloat16)  # p = 0.98201, in bfloat16 0.98047
    assert first_exit(Confidence(0.9815), logits).item() == 0


def test_earliest_ways_out() -> None:
    steady = trace_of([[0.7, 0.3]] * 6)
    assert first_exit(Patience(2), steady).item() == 2  # the third exit repeats for the second time
    assert first_exit(Window(4), steady).item() == 3
    uniform = trace_of([[0.5, 0.5]] * 6)
    assert first_exit(Window(2), uniform).item() == 5
    assert first_exit(Entropy(0.69), uniform).item() == 5


def test_window_with_more_classes_does_not_leave_while_the_label_flips() -> None:
    flipping = trace_of([[0.02, 0.7, 0.28], [0.02, 0.28, 0.7]] * 3)
    assert first_exit(Window(3), flipping).item() == 5
    assert first_exit(Window(3, published=True), flipping).item() == 2  # class 0 stays below one half


def test_window_with_more_classes_needs_no_majority() -> None:
    plurality = trace_of([[0.4, 0.35, 0.25]] * 5)
    assert first_exit(Window(3), plurality).item() == 2
    assert first_exit(Window(3, margin=0.03), plurality).item() == 4  # leads by 0.05, not by 0.06


def test_trend_leaves_only_with_the_label_it_rose_for() -> None:
    overtaken = trace_of([[0.40, 0.35, 0.25], [0.45, 0.50, 0.05], [0.3, 0.4, 0.3]])
    assert first_exit(Window(2, "trend"), overtaken).item() == 2


def test_exits_on_some_layers_are_numbered_by_layer() -> None:
    trace = trace_of([[0.9, 0.1]] * 3)
    assert first_exit(Fixed(8), trace, exit_layers=[4, 8, 12]).item() == 1
    by_layer = tuple(0.5 if layer == 8 else -1.0 for layer in range(1, 13))
    assert first_exit(Entropy(by_layer), trace, exit_layers=[4, 8, 12]).item() == 1


SPAN_SIGNALS = [Entropy(0.0), Entropy(0.0, normalised=True), Confidence(0.0)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("policy", SPAN_SIGNALS, ids=str)
def test_padding_changes_no_signal_of_a_span(policy: Threshold, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    for tokens in (1, 2, 7, 30):
        alone = torch.randn(5, tokens, 2, generator=draw).to(dtype) * 3
        padding = torch.full((5, 11, 2), torch.finfo(dtype).min, dtype=dtype)
        expected = policy.signal(alone)
        for padded in (torch.cat([alone, padding], 1), torch.cat([padding, alone], 1)):
            torch.testing.assert_close(policy.signal(padded), expected, rtol=1e-6, atol=1e-6)
        assert not expected.isnan().any()


def test_signals_of_a_span() -> None:
    """Start: all tokens alike; end: one of two of the four."""
    start, end = [0.25] * 4, [0.5, 0.5, 1e-30, 1e-30]
    logits = torch.tensor([start, end]).log().T.unsqueeze(0)  # (1, T, 2)
    assert Entropy(0.0).signal(logits).item() == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert Entropy(0.0, normalised=True).signal(logits).item() == pytest.approx(0.75)
    assert Confidence(0.0).signal(logits).item() == pytest.approx(0.125)


def test_patience_on_spans_wants_both_ends_repeated() -> None:
    tokens = torch.eye(4)
    steady, moving = tokens[0], tokens[:3]
    for start, end, exit in (
        (steady.expand(3, 4), steady.expand(3, 4), 1),
        (steady.expand(3, 4), moving, 2),
        (moving, steady.expand(3, 4), 2),
    ):
        trace = torch.stack([start, end], -1).unsqueeze(1)  # (E, 1, T, 2)
        assert first_exit(Patience(1), trace, task="span").item() == exit


REFUSED: dict[str, tuple[Policy, str, str]] = {
    "entropy on regression": (
        Entropy(0.1),
        "regression",
        r"entropy makes no sense for regression: use patience\(2, tol",
    ),
    "confidence on regression": (Confidence(0.9), "regression", "use patience"),
    "window on regression": (Window(3), "regression", "use patience"),
    "patience without tolerance": (Patience(2), "regression", r"use patience\(2, tolerance=0.5\)"),
    "entropy inside a combination": (Patience(2, 0.5) | Entropy(0.1), "regression", "entropy makes no sense"),
    "too few thresholds": (Entropy((0.1, 0.2)), "classification", "2 values of threshold, but the model has 4 layers"),
    "no such layer": (Fixed(9), "classification", r"no exit there; the exits are after layers \[1, 2, 3, 4\]"),
    "window on spans": (Window(3), "span", r"window makes no sense for span: use entropy\(0.5\), confidence\(0.5\) or"),
    "ruled out on spans": (RuledOut(0.1), "span", "ruled_out makes no sense for span: use entropy"),
    "window inside a combination on spans": (Entropy(0.1) | Window(3), "span", "window makes no sense for span"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_makes_no_sense_is_refused(wrong: str) -> None:
    policy, task, message = REFUSED[wrong]
    with pytest.raises(OfframpError, match=message):
        policy.check(task, [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Patience(0), "patience must be 1 or more"),
        (lambda: Window(0), "at least one exit"),
        (lambda: Entropy(float("nan")), "entropy: threshold must be a number, or one for each layer, not nan"),
        (lambda: Entropy(()), "entropy: threshold must be"),
        (lambda: Patience(2.5), "patience: patience must be a whole number, not 2.5"),
        (lambda: Entropy(0.1) | 5, "either: of must be a list of policies"),
        (lambda: Window(3, "sideways"), "use one of same_side, trend, stable"),
        (lambda: first_exit(Scripted((1, 2)), torch.zeros(4, 3, 2)), "sample 2 was asked for"),
    ],
)
def test_bad_numbers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        make()


@pytest.mark.parametrize(
    ("numbers", "exit"),
    [(np.float32(0.5), 1), (np.array([0.5, 0.25]), 1), ([1, 0.5], 0), (torch.tensor([0.75, 0.25]), 0)],
)
def test_numbers_of_any_kind_are_plain_inside(numbers: Any, exit: int) -> None:
    policy = Entropy(numbers)
    assert policy == policy_from_json(json.loads(json.dumps(policy.to_json())))
    assert hash(policy) == hash(Entropy(numbers))
    assert first_exit(policy, torch.zeros(2, 3, 2)).tolist() == [exit] * 3  # ln 2 = 0.69


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("entropy(0.1)", Entropy(0.1)),
        (" entropy( [0.1, 0.2], normalised=True ) ", Entropy((0.1, 0.2), normalised=True)),
        ("entropy(0.1) | window(8, rule='trend')", Entropy(0.1) | Window(8, "trend")),
        ("window(8, stable, range=0.2)", Window(8, "stable", range=0.2)),
        ("entropy(0.1, normalised=true)", Entropy(0.1, normalised=True)),
        ("entropy(0.1, normalised=false)", Entropy(0.1)),
        ("patience(2) & (confidence(0.8) | fixed(4))", Patience(2) & (Confidence(0.8) | Fixed(4))),
        ("fixed(1) | fixed(2) & fixed(3)", Fixed(1) | (Fixed(2) & Fixed(3))),
    ],
)
def test_policies_as_people_type_them(text: str, policy: Policy) -> None:
    assert policy_from_text(text) == policy


def test_policies_print_as_they_are_typed() -> None:
    assert str(Entropy(0.1, normalised=True) | Window(8)) == "entropy(0.1, normalised=True) | window(8)"
    assert str((Patience(2) | Fixed(3)) & Entropy((0.1, 0.2))) == "(patience(2) | fixed(3)) & entropy([0.1, 0.2])"


def test_the_page_about_exits_names_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "exits.md").read_text(encoding="utf-8")
    shown = [policy_from_text(text) for text in re.findall(r"^\| `(\w+\(.*?\))` \|", page, re.M)]
    built_in = {name for name, rule in REGISTRY.items() if rule.__module__.startswith("offramp.")}
    assert {policy.name for policy in shown} == built_in - {"either", "both"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write it like 'entropy"),
        ("entropy", "write it like 'entropy"),
        ("entropy(0.1) + fixed(2)", "write it like 'entropy"),
        ("entropy(0.1", "write it like 'entropy"),
        ("hunch(3)", r"unknown policy 'hunch' in 'hunch\(3\)': use one of confidence, entropy"),
        ("entropy(treshold=0.1)", "takes the settings threshold, temperature, normalised"),
        ("entropy(__import__('os'))", "plain numbers and words only"),
        ("entropy(much)", "threshold must be a number, or one for each layer, not .much."),
        ("either(1)", "unknown policy 'either'"),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        policy_from_text(text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a policy in JSON is an object"),
        ({"threshold": 0.1}, "a policy in JSON is an object"),
        ({"policy": "hunch"}, "unknown policy 'hunch': use one of both, confidence"),
        (
            {"policy": "entropy", "treshold": 0.1},
            "entropy has no setting 'treshold': it has normalised, temperature, threshold",
        ),
        ({"policy": "entropy"}, "entropy needs normalised, temperature, threshold"),
        ({"policy": "combined", "of": []}, "unknown policy"),
        ({"policy": ["entropy"]}, "a policy in JSON is an object"),
        ({"policy": "entropy", "threshold": "0.1"}, "entropy: threshold must be a number, .*not '0.1'"),
        ({"policy": "entropy", "threshold": None}, "must be a number"),
        ({"policy": "entropy", "threshold": 0.1, "normalised": 1}, "must be true or false"),
        ({"policy": "either", "of": 5}, "must be a list of policies"),
        ({"policy": "scripted", "layers": 3}, "must be a list of whole numbers"),
        ({"policy": "window", "size": 3, "margin": "a"}, "must be a number"),
    ],
)
def test_bad_json_is_refused(data: Any, message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        policy_from_json(data)


def test_fixed_at_full_depth_is_the_last_exit() -> None:
    """Also where DeeBERT's untrained highway sits after the same layer: offline and live."""
    model = tiny_model(layers=2, exit_layers=[1, 2, 2])
    batch = tiny_batch()
    trace = torch.stack(model(**batch).exit_logits)
    assert first_exit(Fixed(2), trace, [1, 2, 2]).tolist() == [2] * 6
    assert first_exit(Fixed(1), trace, [1, 2, 2]).tolist() == [0] * 6
    assert model.answer(Fixed(2), **batch).exit.tolist() == [2] * 6
    assert model.answer(Fixed(1), **batch).exit.tolist() == [0] * 6


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("confidence(90)", ["a probability is at most 1, as in confidence(0.9)"]),
        ("entropy(-1) | patience(2)", ["entropy is never below 0"]),
        ("(confidence([2, 3]) & entropy(-1)) | fixed(2)", ["at most 1", "never below 0"]),
        ("confidence(0.9) & entropy(0)", []),
        ("confidence([0.9, 3])", []),
    ],
)
def test_a_threshold_that_lets_nobody_go_is_told_of(
    text: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    policy_from_text(text)
    assert len(caplog.messages) == len(said)
    assert all(word in message for word, message in zip(said, caplog.messages, strict=True))
