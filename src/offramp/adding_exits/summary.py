"""What adding exits gave, in a few lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from offramp.adding_exits.run import Added
from offramp.evaluation.key_figures import AGREEMENT, main_metric, metric_title, value, written


def show(added: Added, console: Console) -> None:
    """Within 80 columns, but for commands and names of files: these stay whole, to be copied."""
    console.print(Text(headline(added), style="bold"), soft_wrap=True)
    console.print(f"Its weights and full-depth answers are unchanged. On {added.results.rows:,} held-out rows:")
    console.print(each_exit(added))
    for line in verdict(added):
        console.print(Text(line))
    for name, what in pointers(added):
        console.print(Text(f"{name:<9}{what}"), soft_wrap=True)


def headline(added: Added) -> str:
    layers = added.model.exits.layers[:-1]
    if len(layers) == 1:
        where = f"an exit after layer {layers[0]}"
    elif layers == tuple(range(layers[0], layers[-1] + 1)):
        where = f"exits after layers {layers[0]} to {layers[-1]}"
    else:
        where = f"exits after layers {', '.join(map(str, layers))}"
    return f"{added.name}: {where} of {added.results.depth}, trained on {added.trained_on:,} rows"


def each_exit(added: Added) -> Table:
    """What each exit would score if it answered everything, and how many leave by it; the last is the classifier."""
    results, metric, point = added.results, main_metric(added.results), added.results.point
    labels = added.model.outputs > 1
    alike = "same as the classifier" if labels else "correlation with the classifier"
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for column in ("layer", *([] if metric == AGREEMENT else [metric_title(metric)]), alike):
        table.add_column(column, justify="right", no_wrap=True)
    if point is not None:
        table.add_column("leave here", justify="right", no_wrap=True)
    table.add_column("")
    for exit in results.exits:
        cells = [] if metric == AGREEMENT else [written(value(exit, metric), metric)]
        same = written(exit.agreement, AGREEMENT) if labels else f"{exit.agreement:.3f}"
        cells.append("" if exit is results.exits[-1] else same)
        if point is not None:
            cells.append(f"{100 * point.exits.get(exit.layer, 0) / results.rows:.1f} %")
        table.add_row(str(exit.layer), *cells, "the classifier itself" if exit is results.exits[-1] else "")
    return table


def verdict(added: Added) -> Iterator[str]:
    found, results, point = added.calibration, added.results, added.results.point
    if found is None or point is None:
        yield f"Nothing is certified: {added.uncertified}."
        yield "The exits are there; until a policy is calibrated, all answers are full depth's."
        return
    yield f"Certified: {found.promise}, tested on {found.tested_on:,} held-out rows."
    metric, parts = main_metric(results), []
    if metric != AGREEMENT:
        own = written(value(results.full_depth, metric), metric)
        parts.append(f"{metric_title(metric)} {written(value(point, metric), metric)} (the classifier's: {own})")
    if added.model.outputs > 1:
        parts.append(f"{written(point.agreement, AGREEMENT)} of the answers are the classifier's")
    parts.append(f"{point.mean_layers:.2f} of {results.depth} layers on average, {point.speed_up:.2f} × fewer")
    yield f"Under that policy: {'; '.join(parts)}."


def pointers(added: Added) -> Iterator[tuple[str, str]]:
    """Where the report is, and what to do next."""
    folder = shlex.quote(str(added.folder))
    if added.report is not None:
        yield "report", str(added.report)
    if added.calibration is None:
        yield "more", f"offramp calibrate {folder} --data MORE.csv --max-loss 0.02"
    yield "try", f'offramp predict {folder} "TEXT"'
    yield "measure", f"offramp bench {folder}"
    yield "serve", f"offramp serve {folder}"
