"""Static models, and cascades of two of them: curves to be beaten, from the cells of `plain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.study.answers import unpacked
from benchmarks.study.crossfit import CrossFitted, Point, rounded
from benchmarks.study.halves import Rows, dev_halves
from offramp.evaluation.flops import ModelShape, elue_macs_to, elue_mflops
from offramp.evaluation.sweep import pareto
from offramp.tasks.metrics import score

Found = Mapping[str, Any]
"""A cell as it is stored."""


@dataclass(frozen=True)
class Candidate:
    """An operating point as both halves have it."""

    halves: tuple[Point, Point]


@dataclass(frozen=True)
class Seen:
    """A candidate as one half sees it."""

    candidate: Candidate
    cost: float
    score: float


def cross_fit_candidates(candidates: Sequence[Candidate], free: Sequence[float]) -> CrossFitted:
    """The front on one half, as the other half has it; what does not beat no model at all (`free`) is not chosen."""

    def chosen(by: int, reported: int) -> list[Point]:
        seen = [Seen(one, one.halves[by].layers, one.halves[by].score) for one in candidates]
        front = pareto(seen, by=lambda one: one.score)  # type: ignore[arg-type, type-var]
        return [one.candidate.halves[reported] for one in front if one.score > free[by]]

    return CrossFitted(on_a=chosen(1, 0), on_b=chosen(0, 1))


def alone(cells: Mapping[int, Found]) -> list[Candidate]:
    """Each static model by itself, by depth: all rows go through it."""
    return [Candidate((of_half(found, depth, 0), of_half(found, depth, 1))) for depth, found in cells.items()]


def of_half(found: Found, depth: int, half: int) -> Point:
    [exit] = found["exits"]
    flops = exit["mflops"][half] / found["full_mflops"][half]
    return rounded(Point(f"{depth} layers", depth / found["depth"], flops, exit["halves"][half]))


def cascades(cells: Mapping[int, Found]) -> list[Candidate]:
    """A shorter model first, the full one from the start for rows that it is not certain of; and each model alone.

    In regression there is no entropy to be certain by.
    """
    candidates = alone(cells)
    depth = max(cells)
    full = FullModel(cells[depth])
    for layers, found in sorted(cells.items()):
        if layers < depth and "levels" in found["answers"]:
            candidates += full.after(found, layers)
    return candidates


@dataclass(frozen=True)
class FullModel:
    """The second stage of a cascade."""

    found: Found

    def _unpacked(self, name: str, kind: str) -> NDArray[Any]:
        return unpacked(self.found["answers"][name], kind)

    @cached_property
    def labels(self) -> NDArray[Any]:
        return self._unpacked("labels", "u1")

    @cached_property
    def predictions(self) -> NDArray[Any]:
        return self._unpacked("predictions", "u1")

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        return self._unpacked("lengths", "<u2").astype(np.int64)

    def mflops(self, layers: int) -> NDArray[np.float64]:
        """Of a model of so many layers with one exit, row by row."""
        shape = dataclasses.replace(ModelShape(**self.found["shape"]), depth=layers)
        return np.asarray(elue_mflops(elue_macs_to(shape, self.lengths, layers)))

    def after(self, first: Found, layers: int) -> list[Candidate]:
        """Every level of certainty below which a row goes on to the full model."""
        levels = unpacked(first["answers"]["levels"], "u1")
        answers = unpacked(first["answers"]["predictions"], "u1")
        if len(answers) != len(self.labels):
            raise ValueError(
                f"{len(answers)} and {len(self.labels)} rows: the static cells are not of the same dev set"
            )
        halves = dev_halves(len(self.labels))
        return [
            Candidate((self._point(*both, halves[0]), self._point(*both, halves[1])))
            for level in sorted(set(levels.tolist()))[1:]
            for both in [(f"{layers} layers, then all from level {level}", layers, levels >= level, answers)]
        ]

    def _point(self, name: str, layers: int, goes_on: NDArray[np.bool_], answers: NDArray[Any], half: Rows) -> Point:
        depth = self.found["depth"]
        on, full = goes_on[half], self.mflops(depth)[half]
        given = np.where(on, self.predictions[half], answers[half])
        return rounded(
            Point(
                policy=name,
                layers=layers / depth + float(on.mean()),
                flops=float((self.mflops(layers)[half] + on * full).mean() / full.mean()),
                score=score(self.found["metric"], given, self.labels[half]),
            )
        )
