"""What a check found, as a table for a terminal."""

from __future__ import annotations

import math

from rich import box
from rich.table import Table

from offramp.calibration.drift import Check
from offramp.calibration.shift import MARKED

LOST = {
    "accuracy": "accuracy lost",
    "f1": "F1 lost",
    "inconsistency": "answers that differ from full depth's",
    "cost": "cost",
}
SHIFTED = {
    "exits": "layers rows leave after",
    "confidence": "how sure answers are",
    "full_confidence": "how sure full depth is",
}


def check_table(found: Check) -> Table:
    """What the policy gave at calibration, and what it gives now."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for column in ("calibrated", "now"):
        table.add_column(column, justify="right", no_wrap=True)
    before = found.before
    table.add_row("rows", f"{found.before['rows']:,}", f"{found.rows:,}")
    if found.tested is not None:
        same = found.tested.loss == found.loss
        seen, bound = (_percent(before["risk"]), _at_most(before["bound"])) if same else ("", "")
        table.add_row(LOST[found.tested.loss], seen, _percent(found.tested.risk))
        sure = f"at most, with {100 * found.confidence:.12g} % confidence"
        table.add_row(sure, bound, _at_most(found.tested.bound))
    table.add_row("agreement with full depth", _percent(before["agreement"]), _percent(found.agreement))
    table.add_row("layers run, of full depth's", _percent(before["cost"]), _percent(found.cost))
    table.add_section()
    for one in found.shifts:
        style = "bold" if one.size == MARKED else ""
        table.add_row(f"moved: {SHIFTED[one.name]}", "", f"{_percent(one.distance)}, {one.size}", style=style)
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _at_most(share: float) -> str:
    """A bound must not look smaller than it is."""
    return _percent(math.ceil(10_000 * share - 1e-9) / 10_000)
