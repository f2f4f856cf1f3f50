"""Write the tables of docs/explanation/gates.md from benchmarks/results/gated and benchmarks/results/gates.json.

python benchmarks/gates_page.py
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from statistics import mean, stdev

import numpy as np
from recipes_page import ROOT, with_rows

from offramp.evaluation.results import OperatingPoint, Results

RUNS = ROOT / "benchmarks" / "results" / "gated"
TIMES = ROOT / "benchmarks" / "results" / "gates.json"
PAGE = ROOT / "docs" / "explanation" / "gates.md"
STATIC = {6: "plain", 5: "plain-5", 4: "plain-4", 3: "plain-3", 2: "plain-2", 1: "plain-1"}
GATED = tuple(f"ebert-{target}-{block}" for target in (0.8, 0.6, 0.4) for block in (1, 64))
BUDGETS = (1.0, 0.75, 0.5, 0.35)
CASES = {
    "blocks of 64, batch 1": ("0.6 scattered", "0.6 ordered", "0.4 scattered", "0.4 ordered"),
    "blocks of 64, batch 16": ("0.6 scattered", "0.6 ordered", "0.4 scattered", "0.4 ordered"),
    "one gate a neuron, varying each for itself, batch 1": ("not folded", "folded"),
    **{
        f"sst-2-ebert-{kind}, batch {rows}": ("masked", "skipping", "folded")
        for kind in ("0.6-1", "0.6-64", "0.4-64")
        for rows in (1, 16)
    },
}


def runs_of(task: str, variant: str) -> list[Results]:
    return [Results.read(path) for path in sorted(RUNS.glob(f"{task}-{variant}-seed*.json"))]


def score(run: Results) -> float:
    return 100 * run.full_depth.scores[run.metric]


def written(values: list[float]) -> str:
    """Mean ± standard deviation, or the one number there is."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def static_at(task: str, ratio: float) -> float | None:
    """What models cut to fewer layers would score at this share of the FLOPs: between the two depths nearest to it."""
    means = {
        depth / 6: mean(map(score, found)) for depth, variant in STATIC.items() if (found := runs_of(task, variant))
    }
    shares = sorted(means)
    if not shares[0] <= ratio <= shares[-1]:
        return None
    return float(np.interp(ratio, shares, [means[share] for share in shares]))


def full_depth_rows(task: str) -> Iterator[str]:
    """Score and FLOPs of every variant; beside gated ones, what fewer layers give at the same FLOPs."""
    for depth, variant in STATIC.items():
        if found := runs_of(task, variant):
            name = "all 6 layers" if depth == 6 else f"the first {depth}"
            yield f"| {name} | {len(found)} | {written([score(run) for run in found])} | {depth / 6:.2f} | |"
    if found := runs_of(task, "plain-long"):
        yield f"| all 6 layers, twice the epochs | {len(found)} | {written([score(run) for run in found])} | 1.00 | |"
    for variant in GATED:
        found = runs_of(task, variant)
        if not found:
            continue
        ratio = mean(run.gates.ratio for run in found if run.gates)
        target, block = variant.split("-")[1:]
        beside = static_at(task, ratio)
        name = f"gates, target {target}, {'each neuron' if block == '1' else f'blocks of {block}'}"
        scores = written([score(run) for run in found])
        yield f"| {name} | {len(found)} | {scores} | {ratio:.2f} | {'' if beside is None else f'{beside:.1f}'} |"


def within(run: Results, budget: float) -> OperatingPoint | None:
    """The best of all policies within a share of the ungated model's FLOPs."""
    whole = 1000 * run.gates.original_gflops if run.gates else max(map(mflops, points(run)))
    good = [point for point in points(run) if mflops(point) <= budget * whole * 1.0001]
    return max(good, key=lambda point: point.scores[run.metric], default=None)


def points(run: Results) -> list[OperatingPoint]:
    return [point for sweep in run.sweeps for point in sweep.points]


def mflops(point: OperatingPoint) -> float:
    assert point.ebert_mflops is not None
    return point.ebert_mflops


def exits_rows(task: str) -> Iterator[str]:
    """Exits alone, gates alone and both, within budgets of FLOPs."""
    for name, variant in (
        ("exits", "elasticbert"),
        ("gates, target 0.6, blocks of 64", "ebert-0.6-64"),
        ("exits and gates, target 0.6", "ebert+elasticbert-0.6-64"),
    ):
        [run] = [run for run in runs_of(task, variant) if run.settings["seed"] == 1]
        best = [within(run, budget) for budget in BUDGETS]
        cells = [f"{100 * point.scores[run.metric]:.1f}" if point else "–" for point in best]
        yield f"| {name} | {' | '.join(cells)} |"


def squad_rows() -> Iterator[str]:
    """F1, exact match and FLOPs at full depth."""
    for name, variant in (
        ("all 6 layers", "plain"),
        ("all 6 layers, twice the epochs", "plain-long"),
        ("the first 5", "plain-5"),
        ("the first 4", "plain-4"),
        ("the first 3", "plain-3"),
        ("exits", "elasticbert"),
        ("gates, target 0.8, blocks of 64", "ebert-0.8-64"),
        ("gates, target 0.6, each neuron", "ebert-0.6-1"),
        ("gates, target 0.6, blocks of 64", "ebert-0.6-64"),
        ("exits and gates, target 0.6, blocks of 64", "ebert+elasticbert-0.6-64"),
    ):
        [run] = runs_of("squad", variant)
        layers = int(variant.split("-")[1]) if variant.split("-")[-1].isdigit() and "ebert" not in variant else 6
        ratio = run.gates.ratio if run.gates else layers / 6
        exact = 100 * run.full_depth.scores["exact"]
        yield f"| {name} | {score(run):.1f} | {exact:.1f} | {ratio:.2f} |"


def time_rows(threads: str) -> Iterator[str]:
    stored = json.loads(TIMES.read_text(encoding="utf-8"))
    for case, variants in CASES.items():
        if found := stored.get(f"{case}, {threads}"):
            for variant in variants:
                one = found["variants"][variant]
                spread = f"{one['ratio_lower_quartile']:.2f} – {one['ratio_upper_quartile']:.2f}"
                base = found["variants"]["ungated"]["ms"]
                yield f"| {case}: {variant} | {base:.1f} | {one['ms']:.1f} | {one['ratio']:.2f} ({spread}) |"


def filled(page: str) -> str:
    """The page with every table made anew."""
    for title, rows in (
        ("SST-2, accuracy", full_depth_rows("sst-2")),
        ("MNLI, a small part, accuracy", full_depth_rows("mnli-small")),
        ("SST-2, within", exits_rows("sst-2")),
        ("MNLI, within", exits_rows("mnli-small")),
        ("SQuAD, within", exits_rows("squad")),
        ("SQuAD 1.1", squad_rows()),
        ("two threads", time_rows("2 threads")),
        ("one thread", time_rows("1 thread")),
    ):
        page = with_rows(page, title, list(rows))
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
