"""Several results side by side: who is best at full depth, at half the cost, and over the whole curve."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.evaluation.elue import RESULTS, with_reference
from offramp.evaluation.key_figures import key_figures, main_metric, shown_metrics, value
from offramp.evaluation.plots import write_plots
from offramp.evaluation.report import by_task, recipe_of, write_report
from offramp.evaluation.results import ExitScore, OperatingPoint, Results, Sweep
from offramp.evaluation.sweep import area, pareto
from offramp.evaluation.writing import drawing_is_possible
from offramp.shipped import is_shipped, results_home
from offramp.whole_file import whole_file

FORMAT = 1
SEED = re.compile(r"[-_ .]*(?<![A-Za-z])seed[-_ =]?\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """One line of the table: a result, or the runs of one name, averaged."""

    task: str
    split: str
    name: str
    recipe: str
    metric: str
    rows: int
    runs: int
    numbers: dict[str, float | None]
    """By the names of `key_figures`; and `flops_ratio`, EBERT's, where one of the results compared has gates."""
    deviations: dict[str, float | None]
    """Sample standard deviation over runs; None for a single run."""


@dataclass(frozen=True)
class Comparison:
    """Results that were found comparable, and their table."""

    results: list[Results]
    """Grouped by task and split; results of one name are runs of one method."""

    def groups(self) -> dict[tuple[str, str], list[Row]]:
        """The rows of each task and split."""
        gated = any(one.gates for one in self.results)
        return {key: _rows(results, gated) for key, results in by_task(self.results).items()}

    def without_reference(self) -> list[str]:
        """The tasks that have no reference curve, and so no ELUE score."""
        with_one = {one.task for one in self.results if any(sweep.elue is not None for sweep in one.sweeps)}
        return sorted({one.task for one in self.results} - with_one)

    def averages(self) -> list[Row]:
        """One row a name over all tasks; none unless every name has every task, as averages would not compare."""
        groups = list(self.groups().values())
        names = [[row.name for row in rows] for rows in groups]
        if len(groups) < 2 or any(sorted(one) != sorted(names[0]) for one in names):
            return []
        return [_average([row for rows in groups for row in rows if row.name == name]) for name in names[0]]

    def write(self, folder: Path) -> list[Path]:
        """Write comparison.json, comparison.csv, the plots (a folder a task, if there are several) and report.html."""
        try:
            return self._write(folder)
        except OSError as error:
            raise OfframpError(f"{folder} cannot be written to ({error.strerror})") from error

    def _write(self, folder: Path) -> list[Path]:
        rows = [row for group in self.groups().values() for row in group]
        data = {"format": FORMAT, "rows": _plain(rows), "averages": _plain(self.averages())}
        text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
        written = [folder / "comparison.json", folder / "comparison.csv"]
        for path, content in zip(written, (text, _csv([*rows, *self.averages()])), strict=True):
            with whole_file(path) as file:
                file.write(content)
        if not drawing_is_possible():
            return written
        groups = by_task(self.results)
        for (task, split), results in groups.items():
            written += write_plots(results, folder if len(groups) == 1 else folder / _file_name(f"{task}-{split}"))
        return [*written, write_report(self.results, folder / "report.html")]


def compare(
    sources: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    names: Sequence[str] | None = None,
    split: str | None = None,
    metric: str | None = None,
    policy: str | None = None,
    group_seeds: bool = False,
    reference: str | Path | None = None,
) -> Comparison:
    """Read model folders, evaluation folders or results files and lay them side by side.

    `metric` and `policy` judge by another metric than the task's own, and by one policy instead of the best of all.
    `reference` has the curves that the ELUE score is taken over, as `reference_curve` reads them.
    With `group_seeds`, names that differ in their seed only (`rome-seed1`, `rome-seed2`) are runs of one method.
    """
    if names is not None and len(names) != len(sources):
        raise OfframpError(f"{len(names)} names for {len(sources)} results: give one name for each, in the same order")
    found: dict[Path, Results] = {}
    for number, source in enumerate(sources):
        for path, results in _read(results_home(source) if is_shipped(source) else Path(source), split):
            if path.resolve() in found:
                raise OfframpError(f"{path} is named twice: name each result once")
            found[path.resolve()] = dataclasses.replace(results, name=names[number] if names else results.name)
    chosen = [_by_metric(_by_policy(with_reference(one, reference), policy), metric) for one in found.values()]
    for group in by_task(chosen).values():
        _must_be_comparable(group)
    chosen = _by_seed(chosen) if group_seeds else _told_apart(chosen, list(found))
    comparison = Comparison([one for group in by_task(chosen).values() for one in group])
    if out is not None:
        comparison.write(Path(out))
    return comparison


def _read(source: Path, split: str | None) -> list[tuple[Path, Results]]:
    if not source.exists():
        raise OfframpError(
            f"{source} does not exist: name a model that was evaluated, an evaluation folder or a {RESULTS}"
        )
    paths = [source] if source.is_file() else _results_files(source)
    if not paths:
        raise OfframpError(f"{source} holds no results: run `offramp evaluate {source}` first")
    read = [(path, Results.read(path)) for path in paths]
    kept = [(path, results) for path, results in read if split in (None, results.split)]
    if not kept:
        there = ", ".join(sorted({results.split for _, results in read}))
        raise OfframpError(f"{source} has no results for the split {split}, only for {there}: evaluate it there first")
    return kept


def _results_files(folder: Path) -> list[Path]:
    """A folder of one evaluation, of a model's evaluations, or a model's."""
    patterns = (RESULTS, f"evaluation/*/{RESULTS}", f"*/{RESULTS}")
    return next((found for pattern in patterns if (found := sorted(folder.glob(pattern)))), [])


def _by_policy(results: Results, policy: str | None) -> Results:
    if policy is None:
        return results
    kept = [sweep for sweep in results.sweeps if sweep.name == policy]
    if not kept:
        there = ", ".join(sweep.name for sweep in results.sweeps)
        raise OfframpError(f"{results.name} has no sweep of the policy {policy}, only of {there or 'none'}")
    return dataclasses.replace(results, sweeps=kept, pareto=pareto(point for one in kept for point in one.points))


def _by_metric(results: Results, metric: str | None) -> Results:
    """The same results with this metric as the score. The area follows; the ELUE score is one metric's only."""
    if metric is None or metric == main_metric(results):
        return results
    if metric not in results.full_depth.scores:
        there = ", ".join(results.full_depth.scores) or "none, as it has no labels"
        raise OfframpError(f"{results.name} was not scored by {metric}: its metrics are {there}")

    def first(scores: dict[str, float]) -> dict[str, float]:
        return {metric: scores[metric], **scores}

    def judged(point: OperatingPoint) -> OperatingPoint:
        return dataclasses.replace(point, scores=first(point.scores))

    exits = [dataclasses.replace(exit, scores=first(exit.scores)) for exit in results.exits]
    sweeps = [
        _sweep(sweep.name, [judged(p) for p in sweep.points], exits[0], results.depth) for sweep in results.sweeps
    ]
    return dataclasses.replace(
        results,
        metrics=[metric, *(one for one in results.metrics if one != metric)],
        exits=exits,
        sweeps=sweeps,
        pareto=pareto(point for sweep in sweeps for point in sweep.points),
        point=judged(results.point) if results.point else None,
    )


def _sweep(name: str, points: list[OperatingPoint], first: ExitScore, depth: int) -> Sweep:
    return Sweep(name, points, area(points, first.layer / depth, value(first, next(iter(first.scores)))))


def _must_be_comparable(group: Sequence[Results]) -> None:
    first = group[0]
    for other in group[1:]:
        both = f"{first.name} and {other.name} cannot be compared on {first.task} {first.split}"
        if other.rows != first.rows:
            raise OfframpError(f"{both}: {first.rows} rows and {other.rows}; evaluate both on the same data")
        digests = first.settings.get("data"), other.settings.get("data")
        if all(digests) and digests[0] != digests[1]:
            raise OfframpError(f"{both}: the rows are not the same; evaluate both on the same data")
        if main_metric(other) != main_metric(first):
            shared = [metric for metric in shown_metrics(first)[:-1] if metric in other.full_depth.scores]
            hint = f"say --metric {shared[0]}" if shared else "evaluate both with the same metric"
            raise OfframpError(f"{both}: scored by {main_metric(first)} and by {main_metric(other)}; {hint}")


def _by_seed(results: Sequence[Results]) -> list[Results]:
    return [dataclasses.replace(one, name=SEED.sub("", one.name).strip() or one.name) for one in results]


def _told_apart(results: Sequence[Results], paths: Sequence[Path]) -> list[Results]:
    """Where two results of a task have one name, the folder is added; where that is the same too, the whole path."""
    for more in (_model_folder, str):
        seen = Counter((one.task, one.split, one.name) for one in results)
        results = [
            dataclasses.replace(one, name=f"{one.name} ({more(path)})")
            if seen[one.task, one.split, one.name] > 1
            else one
            for one, path in zip(results, paths, strict=True)
        ]
    return list(results)


def _model_folder(path: Path) -> str:
    """`runs/a/evaluation/dev/results.json` belongs to `a`."""
    folder = path.parent
    return folder.parents[1].name if folder.parent.name == "evaluation" else folder.name


def _rows(results: Sequence[Results], gated: bool) -> list[Row]:
    metric = main_metric(results[0])
    names = dict.fromkeys(one.name for one in results)
    return [_row([one for one in results if one.name == name], metric, gated) for name in names]


def _row(runs: Sequence[Results], metric: str, gated: bool) -> Row:
    found = [key_figures(run, metric) | (_flops_ratio(run) if gated else {}) for run in runs]
    numbers = {key: _mean(one[key] for one in found) for key in found[0]}
    deviations = {key: _deviation([one[key] for one in found]) for key in found[0]}
    first = runs[0]
    recipes = " ".join(dict.fromkeys(recipe_of(run) for run in runs))
    return Row(first.task, first.split, first.name, recipes, metric, first.rows, len(runs), numbers, deviations)


def _flops_ratio(results: Results) -> dict[str, float | None]:
    return {"flops_ratio": results.gates.ratio if results.gates else None}


def _average(rows: Sequence[Row]) -> Row:
    numbers = {key: _mean(row.numbers[key] for row in rows) for key in rows[0].numbers}
    recipes = " ".join(dict.fromkeys(row.recipe for row in rows))
    return Row(
        "average",
        "",
        rows[0].name,
        recipes,
        "",
        sum(r.rows for r in rows),
        rows[0].runs,
        numbers,
        dict.fromkeys(numbers),
    )


def _mean(numbers: Iterable[float | None]) -> float | None:
    """None if one is missing: a mean of the others would not compare."""
    known = list(numbers)
    return None if any(number is None for number in known) else statistics.fmean(known)  # type: ignore[arg-type]


def _deviation(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return statistics.stdev(known) if len(known) == len(numbers) > 1 else None


def _plain(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(row) for row in rows]


def _csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    about = ["task", "split", "name", "recipe", "metric", "rows", "runs"]
    keys = list(rows[0].numbers)
    spread = any(row.runs > 1 for row in rows)
    writer.writerow([*about, *keys, *(f"{key}_sd" for key in keys if spread)])
    for row in rows:
        numbers = [row.numbers[key] for key in keys] + [row.deviations[key] for key in keys if spread]
        writer.writerow([*(getattr(row, name) for name in about), *numbers])
    return text.getvalue()


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)
