"""What an evaluation found, as tables for a terminal 80 columns wide, a pipe or a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from offramp.evaluation.key_figures import AGREEMENT, SPEED_UPS, main_metric, value, written
from offramp.evaluation.results import ExitScore, GateReport, OperatingPoint, Results, Sweep
from offramp.evaluation.sweep import best_within, cheapest, quality

LOSSES = (0.0, 0.5, 1.0, 2.0)
"""Points of percent below full depth that people accept."""
MOST_ROWS = 12
"""Of the Pareto front on the terminal; sweep.csv has them all."""


def exits_table(results: Results) -> Table:
    """The score of each exit, answering for every row."""
    metrics = list(results.full_depth.scores)
    table = plain_table("Each exit alone", "layer", *metrics, "agreement", "MFLOPs")
    for one in results.exits:
        table.add_row(str(one.layer), *_scores(one, metrics), f"{100 * one.agreement:.1f} %", flops_written(one.mflops))
    return table


def policies_table(results: Results) -> Table:
    """For each policy the cheapest points that lose little, and the best ones that are fast."""
    metric = main_metric(results)
    table = plain_table("Policies", "policy", "asked for", metric, "layers", "speed-up", "MFLOPs", words=2)
    full = results.full_depth
    table.add_row("full depth", "", written(value(full, metric), metric), *_costs(results.depth, 1, full.mflops))
    for sweep in results.sweeps:
        table.add_section()
        table.add_row(Text(sweep.name, style="bold"), Text("\n".join(_curve(sweep)), style="italic"))
        for wishes, point in handful(sweep, quality(full)):
            score = written(value(point, metric), metric)
            setting = Padding(point.policy, (0, 0, 0, 2))
            table.add_row(setting, wishes, score, *_costs(point.mean_layers, point.speed_up, point.mflops))
    return table


def handful(sweep: Sweep, full_depth: float) -> list[tuple[str, OperatingPoint]]:
    """The points people ask for, each once with the hardest wishes it fulfils, the dearest first."""
    wishes: dict[int, dict[str, str]] = {}
    for loss in reversed(LOSSES):
        if good := cheapest(sweep.points, full_depth - loss / 100):
            wishes.setdefault(sweep.points.index(good), {})["loss"] = f"−{loss:g} at most" if loss else "no loss"
    for speed in SPEED_UPS:
        if fast := best_within(sweep.points, 1 / speed):
            wishes.setdefault(sweep.points.index(fast), {})["speed"] = f"{speed}×"
    return [(", ".join(wishes[place].values()), sweep.points[place]) for place in sorted(wishes, reverse=True)]


def pareto_table(results: Results) -> Table:
    """The points no other beats in both score and cost; of many, some at even steps, first and last included."""
    front = results.pareto
    if len(front) <= MOST_ROWS:
        return _points_table("Pareto front", front, main_metric(results))
    chosen = [front[round(i * (len(front) - 1) / (MOST_ROWS - 1))] for i in range(MOST_ROWS)]
    return _points_table(f"Pareto front: {MOST_ROWS} of {len(front)} points", chosen, main_metric(results))


def sweep_table(sweep: Sweep) -> Table:
    """Every point of a sweep."""
    metrics = list(sweep.points[0].scores) if sweep.points else []
    return _points_table(", ".join([sweep.name, *_curve(sweep)]), sweep.points, *(metrics or [AGREEMENT]))


def point_table(results: Results, point: OperatingPoint) -> Table:
    """The operating point that was asked for: what it gives beside full depth, and where rows leave."""
    full, metrics = results.full_depth, list(results.full_depth.scores)
    table = plain_table(point.policy, "", "this policy", "full depth")
    for metric in metrics:
        table.add_row(metric, written(point.scores[metric], metric), written(full.scores[metric], metric))
    table.add_row("agreement", f"{100 * point.agreement:.1f} %", "")
    table.add_row("mean layers", f"{point.mean_layers:.2f}", str(results.depth))
    of_layers = " (layers)" if results.gates else ""  # gates save what layers do not show
    table.add_row(f"computation cost{of_layers}", f"{point.cost:.4f}", "1")
    table.add_row(f"expected saving{of_layers}", f"{100 * (1 - point.cost):.1f} %", "")
    table.add_row("speed-up (layers)", f"{point.speed_up:.2f}×", "1×")
    table.add_row("MFLOPs (ELUE)", flops_written(point.mflops), flops_written(full.mflops))
    if point.ebert_mflops is not None:
        table.add_row("MFLOPs (EBERT)", flops_written(point.ebert_mflops), "")
    return table


def histogram_table(point: OperatingPoint, width: int = 30) -> Table:
    """Where rows leave."""
    table = plain_table("Rows by the layer they leave after", "layer", "rows", "share", "")
    table.columns[-1].justify = "left"
    most = max(point.exits.values())
    for layer, count in point.exits.items():
        bar = "█" * round(width * count / max(most, 1))
        table.add_row(str(layer), f"{count:,}", f"{100 * count / sum(point.exits.values()):.1f} %", bar)
    return table


def gates_table(gates: GateReport) -> Table:
    """EBERT's report: operations without and with gates, their ratio, and what each layer keeps on average."""
    table = plain_table("Gates, at full depth", "", "original", "dynamic", "ratio")
    flops = (flops_written(gates.original_gflops), flops_written(gates.dynamic_gflops))
    table.add_row("GFLOPs (EBERT)", *flops, f"{gates.ratio:.3f}")
    table.add_section()
    table.add_row(Text("kept in layer", style="bold"), Text("heads", style="bold"), Text("neurons", style="bold"))
    for layer, (heads, neurons) in enumerate(zip(gates.heads, gates.neurons, strict=True), start=1):
        table.add_row(str(layer), f"{100 * heads:.1f} %", f"{100 * neurons:.1f} %")
    return table


def _points_table(title: str, points: Sequence[OperatingPoint], *metrics: str) -> Table:
    table = plain_table(title, "policy", *metrics, "layers", "cost", "speed-up", "MFLOPs")
    for point in points:
        layers, speed, mflops = _costs(point.mean_layers, point.speed_up, point.mflops)
        scores = [written(value(point, metric), metric) for metric in metrics]
        table.add_row(point.policy, *scores, layers, f"{point.cost:.3f}", speed, mflops)
    return table


def plain_table(title: str, *columns: str, words: int = 1) -> Table:
    """The first `words` columns hold words, the others numbers; only the first is broken where space is short."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < words else "right", no_wrap=number > 0, overflow="fold")
    return table


def _scores(one: OperatingPoint | ExitScore, metrics: Sequence[str]) -> list[str]:
    return [written(one.scores[metric], metric) for metric in metrics]


def _costs(layers: float, speed_up: float, mflops: float) -> tuple[str, str, str]:
    return f"{layers:.2f}", f"{speed_up:.2f}×", flops_written(mflops)


def flops_written(number: float) -> str:
    """In whatever unit the column is in."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _curve(sweep: Sweep) -> list[str]:
    """The numbers of a whole curve."""
    area = [] if sweep.area is None else [f"area {100 * sweep.area:.1f}"]
    return area + ([] if sweep.elue is None else [f"ELUE {sweep.elue:+.2f}"])
