"""What the cells say together: curves, areas and leads of every method, task and backbone, over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.study import store
from benchmarks.study.crossfit import CrossFitted, Point
from benchmarks.study.curves import Estimate, MeanCurve, estimate, mean_curve
from benchmarks.study.grid import BACKBONES, TASKS, Backbone, Cell, StudyTask, grid, plain
from benchmarks.study.static import Found, alone, cascades, cross_fit_candidates
from offramp.evaluation.elue import ReferenceCurve

STATIC, CASCADE, OURS = "plain", "cascade", "offramp"
NEARLY = 1e-6

Number = Callable[[str, str, int], float | None]
"""A number of (task, method, seed); None where a cell is missing."""


@dataclass(frozen=True)
class Summary:
    """All cells of one backbone that are there."""

    backbone: Backbone
    cells: dict[Cell, dict[str, Any]]
    tasks: tuple[StudyTask, ...] = tuple(TASKS.values())
    _fitted: dict[tuple[str, str, int, str], CrossFitted | None] = field(default_factory=dict, init=False, repr=False)
    _curves: dict[tuple[str, str, int, str, str], MeanCurve] = field(default_factory=dict, init=False, repr=False)

    @property
    def methods(self) -> tuple[str, ...]:
        """In the order of the tables. The static models are one method, and so are their cascades."""
        return (*((STATIC, CASCADE) if self.backbone.static else ()), *self.backbone.methods)

    def found(self, task: str, method: str, seed: int) -> Found | None:
        return self.cells.get(Cell(self.backbone.name, task, method, seed))

    def static(self, task: str, seed: int) -> dict[int, Found] | None:
        """The static cells by depth, if all are there."""
        cells = {layers: self.found(task, plain(layers), seed) for layers in self.backbone.static}
        return cells if cells and all(cells.values()) else None  # type: ignore[return-value]

    def fitted(self, task: str, method: str, seed: int, rules: str = "common") -> CrossFitted | None:
        """Operating points, cross-fitted."""
        key = (task, method, seed, rules)
        if key not in self._fitted:
            self._fitted[key] = self._fit(*key)
        return self._fitted[key]

    def _fit(self, task: str, method: str, seed: int, rules: str) -> CrossFitted | None:
        if method in (STATIC, CASCADE):
            cells = self.static(task, seed)
            candidates = alone if method == STATIC else cascades
            return None if cells is None else cross_fit_candidates(candidates(cells), self.free(task, seed))
        found = self.found(task, method, seed)
        if found is None or rules not in found["curves"]:
            return None
        curves = found["curves"][rules]
        return CrossFitted(*([Point(*point) for point in curves[half]] for half in CrossFitted._fields))

    def curve(self, task: str, method: str, seed: int, cost: str, rules: str = "common") -> MeanCurve | None:
        fitted = self.fitted(task, method, seed, rules)
        if fitted is None:
            return None
        key = (task, method, seed, cost, rules)
        if key not in self._curves:
            self._curves[key] = mean_curve(fitted, self.free(task, seed), cost)
        return self._curves[key]

    def free(self, task: str, seed: int) -> Sequence[float]:
        """What the most frequent label scores on each half: the same in every cell of a task."""
        return next(found["free"] for cell, found in self.cells.items() if (cell.task, cell.seed) == (task, seed))

    def area(self, cost: str, rules: str = "common") -> Number:
        def number(task: str, method: str, seed: int) -> float | None:
            curve = self.curve(task, method, seed, cost, rules)
            return None if curve is None else curve.area(1 / self.backbone.depth)

        return number

    def at_speed_up(self, cost: str, times: float) -> Number:
        def number(task: str, method: str, seed: int) -> float | None:
            curve = self.curve(task, method, seed, cost)
            return None if curve is None else curve.at(1 / times)

        return number

    def at_full_depth(self, task: str, method: str, seed: int) -> float | None:
        if method == CASCADE:
            return None
        found = self.found(task, plain(self.backbone.depth) if method == STATIC else method, seed)
        return None if found is None else float(found["exits"][-1]["score"])

    def exit_score(self, layer: int) -> Number:
        def number(task: str, method: str, seed: int) -> float | None:
            found = self.found(task, plain(layer) if method == STATIC else method, seed)
            scores = {exit["layer"]: exit["score"] for exit in found["exits"]} if found else {}
            return scores.get(layer)

        return number

    def elue(self, task: str, method: str, seed: int) -> float | None:
        """Mean lead over the static curve at equal FLOPs, in points; on points that are not cheaper than all of it."""
        references = self.references.get(task)
        cells = self.static(task, seed) if method == STATIC else None
        if cells is not None:  # all of them, as the reference has all of them
            every = alone(cells)
            fitted: CrossFitted | None = CrossFitted(*([one.halves[half] for one in every] for half in (0, 1)))
        else:
            fitted = self.fitted(task, method, seed)
        if references is None or fitted is None:
            return None
        leads = [lead(points, reference) for points, reference in zip(fitted, references, strict=True)]
        known = [one for one in leads if one is not None]
        return fmean(known) if known else None

    @cached_property
    def references(self) -> dict[str, tuple[ReferenceCurve, ReferenceCurve]]:
        """The static curve of each half, the mean over seeds, by task."""
        found = {}
        for task in self.tasks:
            runs = [cells for seed in self.backbone.seeds if (cells := self.static(task.name, seed))]
            if runs:
                points = [[one.halves for one in alone(cells)] for cells in runs]
                found[task.name] = (_reference(points, 0), _reference(points, 1))
        return found

    def over_seeds(self, number: Number, task: str, method: str) -> Estimate | None:
        values = [number(task, method, seed) for seed in self.backbone.seeds]
        return estimate([value for value in values if value is not None])

    def over_tasks(self, number: Number, method: str) -> Estimate | None:
        """The mean over all tasks, seed by seed; seeds that lack a task do not count."""
        means = []
        for seed in self.backbone.seeds:
            values = [number(task.name, method, seed) for task in self.tasks]
            if all(value is not None for value in values):
                means.append(fmean(values))  # type: ignore[arg-type]
        return estimate(means)

    def ranking(self, number: Number, task: str) -> dict[str, Estimate]:
        """What is known of each method on a task, the best first."""
        known = {method: self.over_seeds(number, task, method) for method in self.methods}
        there = {method: one for method, one in known.items() if one is not None}
        return dict(sorted(there.items(), key=lambda item: -item[1].mean))


def lead(points: Sequence[Point], reference: ReferenceCurve) -> float | None:
    """Below the first depth of the reference nothing is known to compare with."""
    first = reference.points[0][0]
    comparable = [point for point in points if point.flops >= first - NEARLY]
    if not comparable:
        return None
    return fmean(100 * point.score - reference.at(point.flops) for point in comparable)


def _reference(runs: Sequence[Sequence[tuple[Point, Point]]], half: int) -> ReferenceCurve:
    depths = [[run[place][half] for run in runs] for place in range(len(runs[0]))]
    points = [(fmean(p.flops for p in same), 100 * fmean(p.score for p in same)) for same in depths]
    return ReferenceCurve("score", tuple(sorted(points)), "the static curve")


def winners(ranking: dict[str, Estimate]) -> tuple[str | None, list[str]]:
    """The best mean, and who is no further below it than its interval is wide to one side; itself among them."""
    if not ranking:
        return None, []
    best = next(iter(ranking))
    room = ranking[best].half_width or 0.0
    return best, [method for method, one in ranking.items() if ranking[best].mean - one.mean <= room]


def summaries(out: Path) -> Iterator[Summary]:
    """One for each backbone."""
    for backbone in BACKBONES.values():
        yield Summary(backbone, store.read_all(out, grid([backbone])))
