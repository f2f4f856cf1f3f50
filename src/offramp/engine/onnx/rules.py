"""Policies as nodes of an ONNX graph, for one row of labels or of one number: the same decisions as their `step`.

A rule gives the name of a truth value, or a plain one where the numbers do not matter (a window that is not full yet).
Its state is names of values, and what is known without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from offramp.engine.onnx.graph import Graph
from offramp.policies import Both, Confidence, Either, Entropy, Fixed, Patience, Policy, RuledOut, Scripted, Window
from offramp.policies.base import at_layer
from offramp.policies.combined import Combined
from offramp.policies.threshold import Threshold

Leave = str | bool
State = Any
LARGEST_FLOAT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Asked:
    """An exit that is asked about a row."""

    graph: Graph
    layer: int
    """After which it stands, 1-based."""
    logits: str
    """(1, C)"""
    outputs: int
    """C"""

    def probabilities(self) -> str:
        return self.graph.add("Softmax", self.logits, axis=-1)

    def over(self, kind: str, values: str, axis: int = -1) -> str:
        """A reduction along one dimension, which goes."""
        return self.graph.add(kind, values, self.graph.whole(axis), keepdims=0)

    def compare(self, values: str, kind: str, number: float) -> str:
        return self.graph.add(kind, values, self.graph.number(number))


Rule = Callable[[Any, Asked, State], tuple[Leave, State]]
"""Policy, exit and state to: whether the row leaves, and the next state. No state yet is None."""


def has_rule(policy: Policy) -> bool:
    """Whether a policy can be written as nodes: one that a user defined cannot."""
    if isinstance(policy, Combined):
        return type(policy) in RULES and all(map(has_rule, policy.of))
    return type(policy) in RULES


def leaves(policy: Policy, asked: Asked, state: State) -> tuple[Leave, State]:
    """Whether a row leaves by an exit, and the state for the next."""
    return RULES[type(policy)](policy, asked, state)


def _fixed(policy: Fixed, asked: Asked, state: State) -> tuple[Leave, State]:
    return asked.layer >= policy.layer, None


def _scripted(policy: Scripted, asked: Asked, state: str) -> tuple[Leave, State]:
    return asked.graph.add("LessOrEqual", state, asked.graph.whole(asked.layer)), state


def _threshold(signal: Callable[[Any, Asked], str], policy: Threshold, asked: Asked, state: State) -> tuple[str, State]:
    graph, temperature = asked.graph, at_layer(policy.temperature, asked.layer)
    if temperature != 1:
        logits = graph.add("Div", asked.logits, graph.number(temperature))
        logits = graph.add("Clip", logits, graph.number(-LARGEST_FLOAT), graph.number(LARGEST_FLOAT))
        asked = replace(asked, logits=logits)
    threshold = at_layer(policy.threshold, asked.layer)
    return asked.compare(signal(policy, asked), "Greater" if policy.above else "Less", threshold), None


def _entropy(policy: Entropy, asked: Asked) -> str:
    graph = asked.graph
    log_p = graph.add("LogSoftmax", asked.logits, axis=-1)
    finite = graph.add("Max", log_p, graph.number(-LARGEST_FLOAT))  # where p = 0 the product is to be 0, not NaN
    entropy = graph.add("Neg", asked.over("ReduceSum", graph.add("Mul", graph.add("Exp", log_p), finite)))
    return graph.add("Div", entropy, graph.number(math.log(asked.outputs))) if policy.normalised else entropy


def _confidence(policy: Confidence, asked: Asked) -> str:
    return asked.over("ReduceMax", asked.probabilities())


def _ruled_out(policy: RuledOut, asked: Asked) -> str:
    return asked.over("ReduceMin", asked.probabilities())


def _patience(policy: Patience, asked: Asked, state: State) -> tuple[Leave, State]:
    graph, is_number = asked.graph, asked.outputs == 1
    answer = asked.logits if is_number else graph.add("ArgMax", asked.logits, axis=-1, keepdims=1)  # (1, 1)
    if state is None:
        return False, (answer, graph.weight(np.zeros((1, 1), np.int64)), 0)
    before, agreed, moves = state
    if is_number:
        moved = graph.add("Abs", graph.add("Sub", answer, before))
        same = asked.compare(moved, "Less", policy.tolerance or 0.0)
    else:
        same = graph.add("Equal", answer, before)
    agreed = graph.add("Where", same, graph.add("Add", agreed, graph.whole(1)), graph.whole(0))
    state = (answer, agreed, moves + 1)
    if moves + 1 < policy.patience:
        return False, state
    return graph.add("GreaterOrEqual", agreed, graph.whole(policy.patience)), state


def _window(policy: Window, asked: Asked, state: State) -> tuple[Leave, State]:
    seen = [*(state or ()), asked.probabilities()][-policy.size :]  # each (1, C)
    return len(seen) == policy.size and _settled(policy, asked, seen), seen


def _settled(policy: Window, asked: Asked, seen: list[str]) -> str:
    """Whether a full window tells one story. Where all of it is on one side, its least is, or its largest."""
    graph, over, compare = asked.graph, asked.over, asked.compare
    window = graph.add("Concat", *seen, axis=0)  # (N, C)
    two_sides = asked.outputs == 2 or policy.published
    if two_sides:
        watched = graph.add("Gather", window, graph.weight(np.array(0)), axis=1)  # (N,)
        lead, least, below = watched, 0.5 + policy.margin, 0.5 - policy.margin
    else:
        label = graph.add("ArgMax", seen[-1], axis=-1, keepdims=0)  # (1,): what is predicted now
        watched = graph.add("Squeeze", graph.add("Gather", window, label, axis=1), graph.whole(1))
        is_label = graph.add("Equal", graph.weight(np.arange(asked.outputs)), label)  # (C,)
        others = over("ReduceMax", graph.add("Where", is_label, graph.number(-1), window))
        lead, least, below = graph.add("Sub", watched, others), 2 * policy.margin, -math.inf
    if policy.rule == "trend":
        first = graph.add("Gather", lead, graph.whole(0))
        high, low = compare(first, "Greater", least), compare(first, "Less", below)
        if policy.size > 1:
            ends = [graph.add("Slice", watched, graph.whole(a), graph.whole(a + policy.size - 1)) for a in (0, 1)]
            move = graph.add("Sub", ends[1], ends[0])  # (N-1,)
            high = graph.add("And", high, compare(over("ReduceMin", move, 0), "GreaterOrEqual", 0))
            low = graph.add("And", low, compare(over("ReduceMax", move, 0), "LessOrEqual", 0))
        return graph.add("Or", high, low)
    high = compare(over("ReduceMin", lead, 0), "Greater", least)
    low = compare(over("ReduceMax", lead, 0), "Less", below)
    same_side = graph.add("Or", high, low)
    if policy.rule == "same_side":
        return same_side
    moved = graph.add("Sub", over("ReduceMax", watched, 0), over("ReduceMin", watched, 0))
    return graph.add("And", same_side, compare(moved, "LessOrEqual", policy.range))


def _combined(sign: str, decides: bool, policy: Combined, asked: Asked, state: State) -> tuple[Leave, State]:
    """`decides` is the vote that settles it by itself; the other, where it is known beforehand, changes nothing."""
    steps = [leaves(one, asked, own) for one, own in zip(policy.of, state or [None] * len(policy.of), strict=True)]
    votes = [vote for vote, _ in steps if vote is not (not decides)]
    after = tuple(own for _, own in steps)
    if not votes:
        return not decides, after
    if any(vote is decides for vote in votes):
        return decides, after
    flat = [asked.graph.add("Reshape", str(vote), asked.graph.whole(1)) for vote in votes]
    return reduce(partial(asked.graph.add, sign), flat), after


RULES: dict[type[Policy], Rule] = {
    Fixed: _fixed,
    Scripted: _scripted,
    Entropy: partial(_threshold, _entropy),
    Confidence: partial(_threshold, _confidence),
    RuledOut: partial(_threshold, _ruled_out),
    Patience: _patience,
    Window: _window,
    Either: partial(_combined, "Or", True),
    Both: partial(_combined, "And", False),
}
