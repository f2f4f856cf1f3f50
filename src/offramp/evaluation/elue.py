"""The ELUE score (Liu et al., 2022): how far a model's operating points lie above a reference curve."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from offramp.errors import OfframpError, one_line
from offramp.evaluation.results import OperatingPoint, Results

RESULTS = "results.json"
SHIPPED = "reference/minilm.json"


@dataclass(frozen=True)
class ReferenceCurve:
    """Score against operations of the models to be compared with, on one task."""

    metric: str
    points: tuple[tuple[float, float], ...]
    """(millions of operations, score in percent), ascending in operations."""
    source: str = ""

    def at(self, mflops: float) -> float:
        """The curve between its points by straight lines; outside, the score of its first or last point."""
        operations, scores = zip(*self.points, strict=True)
        return float(np.interp(mflops, operations, scores))


def elue_score(points: Sequence[OperatingPoint], reference: ReferenceCurve) -> float:
    """Mean lead over the reference at equal operations, in points of percent: (1/n) Σ (100 · score_i − P(mflops_i)).

    The reference's own points score 0.
    """
    if reference.metric not in points[0].scores:
        raise OfframpError(
            f"{reference.source} is scored by {reference.metric}, but the task by {', '.join(points[0].scores)}"
        )
    return float(np.mean([100 * point.scores[reference.metric] - reference.at(point.mflops) for point in points]))


def overall_elue_score(by_task: Mapping[str, float]) -> float:
    """The mean over tasks."""
    return float(np.mean(list(by_task.values())))


def reference_curve(task: str, file: str | Path | None = None) -> ReferenceCurve | None:
    """A task's curve from a file, or from the one that comes with offramp; None where that one has none for the task.

    The file is JSON: `{"about": "…", "tasks": {"elue/sst-2": {"metric": "accuracy", "points": [[1865.9, 82.1], …]}}}`
    with points of [millions of operations, score in percent]. Or it is a folder of models that were evaluated, such as
    ElasticBERT cut after 1 to 12 layers, or the `results.json` of one: every exit of each is a point.
    """
    curves = _read(Path(file)) if file else _parse(_shipped(), SHIPPED)
    if file and task not in curves:
        raise OfframpError(f"{file} has no reference curve for {task}: it has {', '.join(curves) or 'none'}")
    return curves.get(task)


def _shipped() -> str:
    return resources.files("offramp.evaluation").joinpath(SHIPPED).read_text(encoding="utf-8")


def with_reference(results: Results, file: str | Path | None) -> Results:
    """The results with their ELUE scores over another reference curve; as they are where none is given."""
    if file is None:
        return results
    curve = reference_curve(results.task, file)
    assert curve is not None  # a file without one was refused
    sweeps = [replace(one, elue=elue_score(one.points, curve) if one.points else None) for one in results.sweeps]
    return replace(results, sweeps=sweeps, settings={**results.settings, "reference": curve.source})


def _of_results(paths: Sequence[Path], source: str) -> dict[str, ReferenceCurve]:
    """A curve for each task that models were evaluated on, by the task's own metric."""
    found: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    for results in map(Results.read, paths):
        metric, points = found.setdefault(results.task, (results.metric, []))
        points += [(exit.mflops, 100 * exit.scores[metric]) for exit in results.exits if metric in exit.scores]
    return {task: ReferenceCurve(metric, _points(points), source) for task, (metric, points) in found.items() if points}


def _read(path: Path) -> dict[str, ReferenceCurve]:
    if path.is_dir():
        if not (paths := sorted(path.rglob(RESULTS))):
            raise OfframpError(f"{path} holds no {RESULTS}: run offramp evaluate on the models in it first")
        return _of_results(paths, str(path))
    try:
        text = path.read_text(encoding="utf-8")
        return _of_results([path], str(path)) if '"exits"' in text else _parse(text, str(path))
    except OSError as error:
        raise OfframpError(f"{path} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise OfframpError(f"{path} is not UTF-8 text") from error


def _parse(text: str, source: str) -> dict[str, ReferenceCurve]:
    try:
        tasks = json.loads(text)["tasks"]
        return {task: ReferenceCurve(str(one["metric"]), _points(one["points"]), source) for task, one in tasks.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OfframpError(
            f'{source} is no reference curve ({one_line(error)}): expected {{"tasks": {{"elue/sst-2": '
            '{"metric": "accuracy", "points": [[mflops, percent], …]}}}'
        ) from error


def _points(points: Iterable[Any]) -> tuple[tuple[float, float], ...]:
    ascending = sorted((float(mflops), float(percent)) for mflops, percent in points)
    if not ascending or not np.isfinite(ascending).all():
        raise ValueError("points must be pairs of numbers, at least one")
    return tuple(ascending)
