"""Every policy, with its rule written down once more for a single sample in plain Python. A new policy adds one row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from offramp.policies import Both, Confidence, Either, Entropy, Fixed, Patience, Policy, RuledOut, Scripted, Window

SAMPLES = 8
"""Most samples in a trace that the matrix is run on."""
SCRIPT = (1, 3, 2, 5, 4, 1, 2, 3)

PADDING = torch.finfo(torch.float32).min
"""What the logits of spans are padded with."""

History = list[list[float]]
"""The logits one sample has seen so far, exit by exit; of spans, each token's two."""
Rule = Callable[[History, int], bool]
"""Whether a sample (its history, its number) leaves now."""


@dataclass(frozen=True)
class Row:
    policy: Policy
    rule: Rule
    classes: tuple[int, ...] = (2, 3, 5)
    """Of spans: tokens."""
    task: str = "classification"

    def shape(self, classes: int) -> tuple[int, ...]:
        """Of one sample's logits at one exit."""
        return (classes, 2) if self.task == "span" else (classes,)


def softmax(logits: list[float]) -> list[float]:
    return torch.tensor(logits).softmax(-1).tolist()


def entropy(logits: list[float]) -> float:
    return -sum(p * math.log(p) for p in softmax(logits) if p > 0)


def label(logits: list[float]) -> int:
    return max(range(len(logits)), key=lambda c: logits[c])


def certain(threshold: float, normalised: bool = False) -> Rule:
    return lambda seen, _: entropy(seen[-1]) / (math.log(len(seen[-1])) if normalised else 1.0) < threshold


def certain_by_layer(thresholds: tuple[float, ...]) -> Rule:
    return lambda seen, _: entropy(seen[-1]) < thresholds[len(seen) - 1]


def cooled(seen: History) -> list[float]:
    return [z / THRESHOLDS[len(seen) - 1] for z in seen[-1]]


def patient(times: int) -> Rule:
    return lambda seen, _: len(seen) > times and len({label(z) for z in seen[-times - 1 :]}) == 1


def patient_number(times: int, tolerance: float) -> Rule:
    def rule(seen: History, _: int) -> bool:
        last = torch.tensor(seen[-times - 1 :]).squeeze(-1)
        return len(seen) > times and bool((last.diff().abs() < tolerance).all())

    return rule


def window(size: int, story: str, margin: float, spread: float, published: bool) -> Rule:
    """ELBERT's windows on P(class 0), or for more classes on the label predicted now."""

    def rule(seen: History, _: int) -> bool:
        if len(seen) < size:
            return False
        p = [softmax(z) for z in seen[-size:]]
        if len(p[0]) == 2 or published:
            x = [q[0] for q in p]
            highs, lows = [v > 0.5 + margin for v in x], [v < 0.5 - margin for v in x]
        else:
            now = label(p[-1])
            x = [q[now] for q in p]
            highs = [q[now] - max(v for c, v in enumerate(q) if c != now) > 2 * margin for q in p]
            lows = [False] * size
        up = all(b >= a for a, b in itertools.pairwise(x))
        down = all(b <= a for a, b in itertools.pairwise(x))
        if story == "trend":
            return (highs[0] and up) or (lows[0] and down)
        side = all(highs) or all(lows)
        return side if story == "same_side" else side and max(x) - min(x) <= spread

    return rule


def ends(tokens: list[list[float]]) -> tuple[list[float], list[float]]:
    """The logits of the start and those of the end, without padding."""
    real = [pair for pair in tokens if pair != [PADDING, PADDING]]
    return [start for start, _ in real], [end for _, end in real]


def certain_span(threshold: float, normalised: bool = False) -> Rule:
    def rule(seen: History, _: int) -> bool:
        start, end = ends(seen[-1])
        largest = math.log(len(start)) if normalised and len(start) > 1 else 1.0
        return (entropy(start) + entropy(end)) / 2 / largest < threshold

    return rule


def likely_span(threshold: float) -> Rule:
    return lambda seen, _: math.prod(max(softmax(end)) for end in ends(seen[-1])) > threshold


def patient_span(times: int) -> Rule:
    return lambda seen, _: len(seen) > times and len({tuple(map(label, ends(z))) for z in seen[-times - 1 :]}) == 1


def either(*rules: Rule) -> Rule:
    return lambda seen, sample: any(rule(seen, sample) for rule in rules)


def both(*rules: Rule) -> Rule:
    return lambda seen, sample: all(rule(seen, sample) for rule in rules)


THRESHOLDS = (0.113, 0.71, 0.317, 0.5171, 0.2)

MATRIX: dict[str, Row] = {
    "entropy": Row(Entropy(0.4131), certain(0.4131)),
    "entropy, normalised": Row(Entropy(0.4131, normalised=True), certain(0.4131, normalised=True)),
    "entropy, by layer": Row(Entropy(THRESHOLDS), certain_by_layer(THRESHOLDS)),
    "entropy, temperatures": Row(
        Entropy(0.4131, temperature=THRESHOLDS), lambda seen, _: entropy(cooled(seen)) < 0.4131
    ),
    "confidence, temperature": Row(
        Confidence(0.8317, temperature=1.7), lambda seen, _: max(softmax([z / 1.7 for z in seen[-1]])) > 0.8317
    ),
    "confidence": Row(Confidence(0.8317), lambda seen, _: max(softmax(seen[-1])) > 0.8317),
    "ruled out": Row(RuledOut(0.0517), lambda seen, _: min(softmax(seen[-1])) < 0.0517),
    "patience": Row(Patience(2), patient(2)),
    "patience of one": Row(Patience(1), patient(1)),
    "patience, regression": Row(Patience(2, tolerance=0.93), patient_number(2, 0.93), (1,), "regression"),
    "same side": Row(Window(3, margin=0.0317), window(3, "same_side", 0.0317, 0, False)),
    "same side, published": Row(Window(3, published=True), window(3, "same_side", 0, 0, True)),
    "trend": Row(Window(2, "trend"), window(2, "trend", 0, 0, False)),
    "trend, published": Row(Window(3, "trend", 0.0317, published=True), window(3, "trend", 0.0317, 0, True)),
    "stable": Row(Window(2, "stable", range=0.2713), window(2, "stable", 0, 0.2713, False)),
    "stable, published": Row(Window(2, "stable", range=0.2713, published=True), window(2, "stable", 0, 0.2713, True)),
    "window of one": Row(Window(1, margin=0.2317), window(1, "same_side", 0.2317, 0, False)),
    "fixed": Row(Fixed(3), lambda seen, _: len(seen) >= 3),
    "fixed, regression": Row(Fixed(2), lambda seen, _: len(seen) >= 2, (1,), "regression"),
    "entropy, span": Row(Entropy(0.6131), certain_span(0.6131), (1, 4, 7), "span"),
    "entropy, normalised, span": Row(
        Entropy(0.4131, normalised=True), certain_span(0.4131, normalised=True), (4, 1, 7), "span"
    ),
    "entropy, hot, span": Row(
        Entropy(0.4131, normalised=True, temperature=3.0),
        lambda seen, _: certain_span(0.4131, normalised=True)(
            [[[z / 3.0 if z != PADDING else z for z in pair] for pair in seen[-1]]], 0
        ),
        (4, 1, 7),
        "span",
    ),
    "confidence, span": Row(Confidence(0.5317), likely_span(0.5317), (2, 4, 7), "span"),
    "patience, span": Row(Patience(1), patient_span(1), (2, 3), "span"),
    "PCEE-BERT, span": Row(
        Patience(1) & Confidence(0.4317), both(patient_span(1), likely_span(0.4317)), (2, 3), "span"
    ),
    "fixed, span": Row(Fixed(2), lambda seen, _: len(seen) >= 2, (3,), "span"),
    "scripted": Row(Scripted(SCRIPT), lambda seen, sample: len(seen) >= SCRIPT[sample]),
    "ELBERT's two stages": Row(
        Entropy(0.1317, normalised=True) | Window(3),
        either(certain(0.1317, normalised=True), window(3, "same_side", 0, 0, False)),
    ),
    "PCEE-BERT": Row(
        Patience(2) & Confidence(0.8317), both(patient(2), lambda seen, _: max(softmax(seen[-1])) > 0.8317)
    ),
    "nested": Row(
        (Entropy(0.1317) | Patience(3)) & Both((Fixed(2), Either((RuledOut(0.1171), Fixed(4))))),
        both(
            either(certain(0.1317), patient(3)),
            lambda seen, _: len(seen) >= 2,
            either(lambda seen, _: min(softmax(seen[-1])) < 0.1171, lambda seen, _: len(seen) >= 4),
        ),
    ),
}
