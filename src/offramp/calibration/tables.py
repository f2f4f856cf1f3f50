"""What a calibration found, as a table for a terminal 80 columns wide."""

from __future__ import annotations

import math

from rich.table import Table

from offramp.calibration.calibrate import Calibration
from offramp.calibration.losses import Cost, Inconsistency
from offramp.evaluation.canvas import shortened
from offramp.evaluation.key_figures import AGREEMENT, metric_title, value, written
from offramp.evaluation.tables import flops_written, plain_table


def calibration_table(found: Calibration) -> Table:
    """Full depth against the policy; below, what was promised of it."""
    full, point, metric = found.full, found.point, shown_metric(found)
    of = f"{found.tested_on:,} of {found.rows:,} rows" if found.tested_on < found.rows else f"{found.rows:,} rows"
    source = found.certificate.data["source"] if found.certificate else found.trace.source if found.trace else ""
    table = plain_table(f"{of} of {shortened(source)}", "", "full depth", "calibrated")
    if metric != AGREEMENT:
        scores = (written(value(one, metric), metric) for one in (full, point))
        table.add_row(metric_title(metric), *scores)
    table.add_row("agreement with full depth", "", written(point.agreement, AGREEMENT))
    table.add_row("mean layers", f"{full.mean_layers:g}", f"{point.mean_layers:.2f}")
    table.add_row("cost (layers)", "1", f"{point.cost:.3f}")
    table.add_row("speed-up (layers)", "1×", f"{point.speed_up:.2f}×")
    table.add_row("MFLOPs", flops_written(full.mflops), flops_written(point.mflops))
    table.add_section()
    table.add_row(f"{loss_name(found)}, seen", "", percent(found.risk))
    table.add_row(f"{loss_name(found)}, {bound_name(found)}", "", percent_at_most(found.bound))
    table.add_row("limit", "", f"{100 * found.promise.limit:g} %")
    return table


def shown_metric(found: Calibration) -> str:
    """The score that the promise is about, else the task's own; without labels, agreement."""
    scores = found.point.scores
    return next((name for name in (_limited(found), *scores) if name in scores), AGREEMENT)


def loss_name(found: Calibration) -> str:
    """What the promise limits, on an axis or before a number."""
    loss = found.promise.loss
    if isinstance(loss, Cost):
        return "operations" if loss.flops else "layers"
    return "answers that differ" if isinstance(loss, Inconsistency) else f"{metric_title(_limited(found))} lost"


def _limited(found: Calibration) -> str:
    """The metric whose loss is limited: the accuracy of spans is called exact match."""
    name = found.promise.loss.name
    return "exact" if name == "accuracy" and "exact" in found.point.scores else name


def bound_name(found: Calibration) -> str:
    """In expectation there is no bound, but a loss that is corrected for one more row."""
    in_expectation = found.promise.method == "expectation"
    return "corrected" if in_expectation else f"upper bound ({100 * found.promise.confidence:.12g} %)"


def percent(share: float) -> str:
    """Two figures behind the point: limits are of the size of 1 %."""
    return f"{100 * share:.3g} %" if abs(share) >= 0.1 else f"{100 * share:.2f} %"


def percent_at_most(share: float) -> str:
    """The same of a bound, which must not look smaller than it is."""
    steps = 1_000 if abs(share) >= 0.1 else 10_000
    return percent(math.ceil(share * steps - 1e-9) / steps)
