"""What `offramp evaluate` leaves in a folder: results.json, tables as CSV, plots and the report."""

from __future__ import annotations

import csv
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, needs
from offramp.evaluation.results import OperatingPoint, Results
from offramp.whole_file import whole_file

log = logging.getLogger("offramp")

PLOTS = ("score_cost", "exits", "histogram", "gates")


def write_results(results: Results, folder: Path, report: bool = True) -> list[Path]:
    """Write everything there is to say; the plots and the report need the `report` extra."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        results.write(folder / "results.json")
        files = [folder / "results.json", _write_sweeps(results, folder / "sweep.csv")]
        files.append(_write_exits(results, folder / "exits.csv"))
    except OSError as error:
        raise OfframpError(f"{folder} cannot be written to ({error.strerror})") from error
    for stale in (folder / "report.html", *(folder / f"{name}.png" for name in PLOTS)):
        stale.unlink(missing_ok=True)
    if report and drawing_is_possible():
        from offramp.evaluation.plots import write_plots
        from offramp.evaluation.report import write_report

        files += write_plots(results, folder)
        files.append(write_report([results], folder / "report.html"))
    return files


def drawing_is_possible() -> bool:
    """Whether the libraries for plots and reports are here; a warning where they are not."""
    try:
        for library in ("matplotlib", "plotly"):
            needs(library, "report")
    except OfframpError as error:
        log.warning("no plots and no report.html: %s", error)
        return False
    return True


def _write_sweeps(results: Results, path: Path) -> Path:
    """One line for each operating point of each sweep, and for the one asked for."""
    metrics = list(results.full_depth.scores)
    asked = [("asked", results.point)] if results.point else []
    points = [(sweep.name, point) for sweep in results.sweeps for point in sweep.points] + asked
    header = ["sweep", "policy", *metrics, "agreement", "mean_layers", "cost", "expected_saving", "speed_up", "mflops"]
    header += ["ebert_mflops", "pareto", *(f"exits_after_{layer}" for layer in dict.fromkeys(_layers(results)))]
    on_front = {point.policy for point in results.pareto}

    def line(name: str, point: OperatingPoint) -> list[Any]:
        scores = [point.scores[metric] for metric in metrics]
        costs = [point.mean_layers, point.cost, 1 - point.cost, point.speed_up, point.mflops, point.ebert_mflops]
        return [
            name,
            point.policy,
            *scores,
            point.agreement,
            *costs,
            int(point.policy in on_front),
            *point.exits.values(),
        ]

    return _write_csv(path, header, [line(name, point) for name, point in points])


def _write_exits(results: Results, path: Path) -> Path:
    metrics = list(results.full_depth.scores)
    lines = [
        [one.layer, *(one.scores[metric] for metric in metrics), one.agreement, one.mflops] for one in results.exits
    ]
    return _write_csv(path, ["layer", *metrics, "agreement", "mflops"], lines)


def _layers(results: Results) -> list[int]:
    return [one.layer for one in results.exits]


def _write_csv(path: Path, header: Sequence[str], lines: Sequence[Sequence[Any]]) -> Path:
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([round(cell, 6) if isinstance(cell, float) else cell for cell in line] for line in lines)
    return path
