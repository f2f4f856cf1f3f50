"""A model with gates under other thresholds: what they keep is a part of the operating point."""

from __future__ import annotations

from collections.abc import Callable

from offramp.evaluation.trace import Trace
from offramp.evaluation.trace_base import TraceBase
from offramp.models import MultiExitModel

THRESHOLDS = (0.5, 1.0, 2.0)
"""Above the model's own: what the logit of a gate must be more for its head or neurons to be kept."""


def gated_traces(model: MultiExitModel, own: TraceBase, run: Callable[[], TraceBase]) -> dict[float, TraceBase]:
    """Traces by threshold, compared with the model's own; none where no gate decides by its own logit.

    `run` makes a trace of the model as it is.
    """
    if model.gates is None or not isinstance(own, Trace) or own.kind != "classification":
        return {}
    settings = model.gates.settings
    if "gumbel" not in (settings.heads, settings.neurons):
        return {}
    thresholds = [settings.threshold + more for more in THRESHOLDS]
    return {threshold: under_threshold(model, own, threshold, run) for threshold in thresholds}


def under_threshold(model: MultiExitModel, own: Trace, threshold: float, run: Callable[[], TraceBase]) -> Trace:
    """What `run` makes of the model under another threshold, compared with its own, which it has again afterwards."""
    assert model.gates is not None
    before = model.gates.settings.threshold
    try:
        model.set_gate_threshold(threshold)
        trace = run()
    finally:
        model.set_gate_threshold(before)
    assert isinstance(trace, Trace)
    return trace.compared_with(own)
