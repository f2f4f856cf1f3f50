"""Populations of which every risk is known: the traces of real models, and made ones, some as nasty as they can be."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from offramp.calibration.losses import F1Gap, Loss
from offramp.calibration.paths import path_in_advance
from offramp.evaluation import ModelShape, Trace
from offramp.policies import Policy

TRACES = Path(__file__).parent / "traces"
MADE = 20_000
"""Rows of a made population."""
CELL = np.arange(8)
Y, FULL, ANSWER = CELL >> 2, (CELL >> 1) & 1, CELL & 1
VALUES = {
    "inconsistency": (FULL != ANSWER).astype(float),
    "accuracy": (FULL == Y).astype(float) - (ANSWER == Y),
    "f1": CELL.astype(float),
}
"""What each loss says of an answer, by 4·y + 2·f + a: the label, full depth's answer, and the answer."""

Rows = NDArray[np.int64]


def trace_of(entropies: NDArray[np.float64], answers: Rows, labels: Rows) -> Trace:
    """A trace whose exits give these answers with these entropies (of at most 1): (E, N) and (N,)."""
    sure = np.concatenate([[0.5], 1 - np.geomspace(0.5, 1e-9, 4000)])
    of_sure = (special.entr(sure) + special.entr(1 - sure)) / np.log(2)
    gap = special.logit(np.interp(-entropies, -of_sure, sure))
    logits = (np.stack([1 - answers, answers], axis=-1) * gap[..., None]).astype(np.float32)
    exits, rows = entropies.shape
    return Trace(
        logits=logits,
        labels=labels,
        lengths=np.full(rows, 32),
        exit_layers=tuple(range(1, exits + 1)),
        shape=ModelShape("bert", exits, 768, 12, 3072, 2, pooler=768),
        task="made/up",
        label_names=("0", "1"),
        metrics=("accuracy",),
        split="made",
    )


def smooth(rows: int = MADE, exits: int = 6, seed: int = 0) -> Trace:
    """Inputs of every difficulty; the later an exit, the surer, and the surer it is the more often it is right."""
    draw = np.random.default_rng(seed)
    difficulty, luck, labels = draw.random(rows), draw.random(rows), draw.integers(0, 2, rows)
    late = np.linspace(0, 1.2, exits)[:, None]
    entropies = special.expit(7 * (difficulty - 0.5 - late) + draw.normal(0, 1, (exits, rows)))
    wrong = luck < 0.05 + 0.4 * entropies**1.5 * (1.4 - late)
    return trace_of(entropies, np.where(wrong, 1 - labels, labels), labels)


@dataclass
class Group:
    """Some rows of a made trace, what they are like at the first exit, and how many of them it answers otherwise."""

    share: float
    entropies: tuple[float, float]
    worse: int = 0
    """Full depth is right, the first exit is not."""
    better: int = 0
    lost: int = 0
    """As `worse`, where the label is 1."""


def grouped(groups: list[Group], seed: int = 0) -> Trace:
    """A trace of four exits, of which the first is sure of some rows, and the next two of none."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, MADE)
    full = np.where(draw.random(MADE) < 0.1, 1 - labels, labels)
    first, entropies = full.copy(), np.full((4, MADE), 0.999)
    ends = np.cumsum([round(group.share * MADE) for group in groups])
    for start, end, group in zip([0, *ends], ends, groups, strict=False):
        rows = np.arange(start, end)
        right = rows[full[rows] == labels[rows]]
        wrong = rows[full[rows] != labels[rows]]
        ones = right[labels[right] == 1]
        changed = np.concatenate([right[: group.worse], wrong[: group.better], ones[: group.lost]])
        first[changed] = 1 - full[changed]
        entropies[0, rows] = draw.uniform(*group.entropies, len(rows))
    order = draw.permutation(MADE)
    return trace_of(entropies[:, order], np.stack([first, full, full, full])[:, order], labels[order])


SURELY = (0.0005, 0.0029)
"""Entropies below the first threshold of the path in advance: whatever is tried first, these rows leave."""


def edge(limit: float) -> Trace:
    """The risk is a hair over the limit wherever the path in advance looks, as inconsistency and as accuracy."""
    return grouped([Group(0.5, SURELY, worse=int(limit * MADE) + 1)])


def edge_of_pairs(limit: float) -> Trace:
    """The same for accuracy, with many answers that become right."""
    return grouped([Group(0.5, SURELY, worse=int((limit + 0.03) * MADE) + 1, better=int(0.03 * MADE))])


def edge_of_f1(limit: float) -> Trace:
    """The same for F1."""
    return _losing(bisect_right(range(MADE // 4), limit, key=lambda lost: _lost(_losing(lost))))


def _losing(lost: int) -> Trace:
    return grouped([Group(0.5, SURELY, lost=lost)])


def _lost(trace: Trace) -> float:
    """Of F1, where everybody leaves at the first exit."""
    return F1Gap().risk(F1Gap().observe(trace, trace.all_at(0)))


def jumps(limit: float) -> Trace:
    """The risk jumps over the limit, accuracy comes back below it, and goes over it again."""
    of_limit = limit * MADE
    return grouped(
        [
            Group(0.3, SURELY, worse=int(0.3 * of_limit)),
            Group(0.1, (0.05, 0.06), worse=int(0.75 * of_limit)),
            Group(0.1, (0.2, 0.22), better=int(0.3 * of_limit)),
            Group(0.5, (0.5, 0.6), worse=int(0.8 * of_limit)),
        ]
    )


@dataclass
class Population:
    """All rows there are, and so the true risk of every policy."""

    name: str
    trace: Trace
    made: bool = True

    @cached_property
    def in_advance(self) -> tuple[tuple[Policy, ...], NDArray[np.int8], NDArray[np.int8]]:
        """The path that needs no rows: policies, cells (P, N), layers (P, N)."""
        policies = path_in_advance(self.trace)
        exits = [self.trace.exits(policy) for policy in policies]
        layers = np.asarray(self.trace.exit_layers, np.int8)
        return policies, np.stack([cells_of(self.trace, one) for one in exits]), np.stack([layers[e] for e in exits])

    @cached_property
    def known(self) -> dict[Policy, tuple[NDArray[np.int64], float]]:
        return {}

    def truth(self, policy: Policy) -> tuple[NDArray[np.int64], float]:
        """How many rows are in each cell, and the cost."""
        if policy not in self.known:
            if len(self.known) % 1000 == 999:
                self.trace = replace(self.trace)  # which forgets what rules look at in it
            exits = self.trace.exits(policy)
            cost = float(np.asarray(self.trace.exit_layers)[exits].mean() / self.trace.depth)
            self.known[policy] = np.bincount(cells_of(self.trace, exits), minlength=8), cost
        return self.known[policy]

    def risk(self, policy: Policy, loss: Loss) -> float:
        return risk_of(loss, self.truth(policy)[0])

    def draw(self, draw: np.random.Generator, n: int, but: Rows | None = None) -> Rows:
        if self.made:
            return draw.integers(0, len(self.trace), n)
        rest = np.arange(len(self.trace)) if but is None else np.setdiff1d(np.arange(len(self.trace)), but)
        return draw.choice(rest, n, replace=False)


def cells_of(trace: Trace, exits: Rows) -> NDArray[np.int8]:
    return F1Gap().observe(trace, exits).astype(np.int8)


def risk_of(loss: Loss, counts: NDArray[np.int64]) -> float:
    return loss.risk(np.repeat(VALUES[loss.name], counts))


@cache
def population_of(name: str, limit: float = 0.0) -> Population:
    torch.set_num_threads(1)
    if name in ("sst2", "imdb"):
        return Population(name, Trace.load(TRACES / f"{name}.npz"), made=False)
    return Population(name, MAKERS[name](limit))


MAKERS = {
    "smooth": lambda limit: smooth(),
    "edge": edge,
    "edge of pairs": edge_of_pairs,
    "edge of F1": edge_of_f1,
    "jumps": jumps,
}
POPULATIONS = ("sst2", "imdb", *MAKERS)
