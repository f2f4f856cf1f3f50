"""Results as one interactive page in one file: nothing is fetched, so it can be mailed, archived and opened offline."""

from __future__ import annotations

import dataclasses
import html
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, needs
from offramp.evaluation.gate_plots import SCALE
from offramp.evaluation.key_figures import (
    PERCENTAGES,
    all_points,
    best_at,
    cheapest_within,
    front,
    key_figures,
    metric_title,
    shown_metrics,
    value,
)
from offramp.evaluation.plots import PALETTE
from offramp.evaluation.results import ExitScore, OperatingPoint, Results
from offramp.whole_file import whole_file

DARK_PALETTE = ("#56B4E9", "#FF8B4A", "#2CC79A", "#E59CC4", "#F0B429", "#9AD1F5", "#B5B5B5")
"""The same hues, light enough for a dark page."""
DARK_SCALE = ("#1F2A36", "#22507A", "#2C7DB8", "#6BB3E3", "#D3EAFA")
"""What is kept more is lighter there."""


def write_report(results: Sequence[Results], path: Path) -> Path:
    """Write report.html: one result in detail, or several overlaid, a task and split at a time."""
    if not results:
        raise OfframpError("a report needs at least one result")
    parts = {
        "title": html.escape(_title(results)),
        "palette": _palette(),
        "style": _page("house.css") + _page("report.css"),
        "script": "".join(map(_page, ("report.js", "gates.js", "table.js"))),
        "plotly": needs("plotly.offline", "report").get_plotlyjs(),
        "data": _as_script({"groups": [_group(group) for group in by_task(results).values()]}),
    }
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _page("report.html"))
    with whole_file(path) as file:
        file.write(text)
    return path


def by_task(results: Sequence[Results]) -> dict[tuple[str, str], list[Results]]:
    """Results that can be laid over each other: those of one task and split."""
    groups: dict[tuple[str, str], list[Results]] = {}
    for one in results:
        groups.setdefault((one.task, one.split), []).append(one)
    return groups


def _page(name: str) -> str:
    return files("offramp.evaluation").joinpath(f"page/{name}").read_text(encoding="utf-8")


def _title(results: Sequence[Results]) -> str:
    tasks = ", ".join(" ".join(key) for key in by_task(results))
    return f"{results[0].name}: {tasks}" if len(results) == 1 else f"{len(results)} results: {tasks}"


def _palette() -> str:
    def variables(series: Sequence[str], kept: Sequence[str]) -> str:
        named = {"series": series, "kept": kept}
        return " ".join(f"--{name}-{i}: {colour};" for name, all in named.items() for i, colour in enumerate(all))

    dark = f':root:not([data-theme="light"]) {{ {variables(DARK_PALETTE, DARK_SCALE)} }}'
    return f":root {{ {variables(PALETTE, SCALE)} }}\n@media (prefers-color-scheme: dark) {{ {dark} }}"


def _as_script(data: Any) -> str:
    """JSON that no name in it can break out of: a browser ends a script at `</script`, whatever the quotes say."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _group(results: Sequence[Results]) -> dict[str, Any]:
    shared = [name for name in shown_metrics(results[0]) if all(name in shown_metrics(one) for one in results)]
    return {
        "task": results[0].task,
        "split": results[0].split,
        "metrics": [{"name": m, "title": metric_title(m), "percent": m in PERCENTAGES} for m in shared],
        "results": [_result(one, shared) for one in results],
    }


def _result(results: Results, metrics: Sequence[str]) -> dict[str, Any]:
    points = all_points(results) + ([results.point] if results.point else [])
    number = {id(point): index for index, point in enumerate(points)}
    starts = [sum(len(sweep.points) for sweep in results.sweeps[:i]) for i in range(len(results.sweeps))]

    def found(point: OperatingPoint | None) -> int | None:
        return number[id(point)] if point else None

    return {
        "name": results.name,
        "model": results.model,
        "recipe": recipe_of(results),
        "rows": results.rows,
        "depth": results.depth,
        "points": [_point(point, metrics) for point in points],
        "sweeps": [
            {"name": sweep.name, "points": list(range(start, start + len(sweep.points)))}
            for sweep, start in zip(results.sweeps, starts, strict=True)
        ],
        "asked": found(results.point),
        "fronts": {m: [number[id(point)] for point in front(all_points(results), m)] for m in metrics},
        "within": {m: found(cheapest_within(results, m)) for m in metrics},
        "half": {m: found(best_at(results, m, 2)) for m in metrics},
        "figures": {m: key_figures(results, m) for m in metrics},
        "exits": [
            {"layer": exit.layer, "mflops": exit.mflops, "values": _values(exit, metrics)} for exit in results.exits
        ],
        "gates": dataclasses.asdict(results.gates) if results.gates else None,
        "settings": _flat(results.settings),
    }


def _point(point: OperatingPoint, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "values": _values(point, metrics),
        "layers": point.mean_layers,
        "cost": point.cost,
        "speedUp": point.speed_up,
        "mflops": point.mflops,
        "exits": sorted(point.exits.items()),
    }


def _values(point: OperatingPoint | ExitScore, metrics: Sequence[str]) -> dict[str, float | None]:
    """A correlation of constants is NaN, which JSON does not know."""
    values = {m: value(point, m) for m in metrics}
    return {m: None if math.isnan(number) else number for m, number in values.items()}


def recipe_of(results: Results) -> str:
    """The recipe's name, from the settings the evaluation noted."""
    return str(results.settings.get("recipe") or "–")


def _flat(settings: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, setting in settings.items():
        if isinstance(setting, dict):
            rows += _flat(setting, f"{above}{key}.")
        else:
            rows.append((f"{above}{key}", setting if isinstance(setting, str) else json.dumps(setting, default=str)))
    return rows
