"""Measuring what exits save."""

from typing import TYPE_CHECKING

from offramp.lazy_names import lazy_names

if TYPE_CHECKING:
    from offramp.evaluation.cost import cost_ratio, exit_counts, expected_saving, speed_up
    from offramp.evaluation.elue import ReferenceCurve, elue_score, overall_elue_score, reference_curve
    from offramp.evaluation.flops import ModelShape, elue_macs, elue_mflops
    from offramp.evaluation.results import ExitScore, GateReport, OperatingPoint, Results, Sweep
    from offramp.evaluation.run import evaluate
    from offramp.evaluation.span_trace import SpanTrace, collect_spans
    from offramp.evaluation.sweep import area, pareto
    from offramp.evaluation.trace import Trace, collect, exit_logits
    from offramp.evaluation.trace_base import TraceBase
    from offramp.models.flops import EbertLayer

__all__ = [
    "EbertLayer",
    "ExitScore",
    "GateReport",
    "ModelShape",
    "OperatingPoint",
    "ReferenceCurve",
    "Results",
    "SpanTrace",
    "Sweep",
    "Trace",
    "TraceBase",
    "area",
    "collect",
    "collect_spans",
    "cost_ratio",
    "elue_macs",
    "elue_mflops",
    "elue_score",
    "evaluate",
    "exit_counts",
    "exit_logits",
    "expected_saving",
    "overall_elue_score",
    "pareto",
    "reference_curve",
    "speed_up",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "EbertLayer": "offramp.models.flops",
        "ExitScore": "offramp.evaluation.results",
        "GateReport": "offramp.evaluation.results",
        "ModelShape": "offramp.evaluation.flops",
        "OperatingPoint": "offramp.evaluation.results",
        "ReferenceCurve": "offramp.evaluation.elue",
        "Results": "offramp.evaluation.results",
        "SpanTrace": "offramp.evaluation.span_trace",
        "Sweep": "offramp.evaluation.results",
        "Trace": "offramp.evaluation.trace",
        "TraceBase": "offramp.evaluation.trace_base",
        "area": "offramp.evaluation.sweep",
        "collect": "offramp.evaluation.trace",
        "collect_spans": "offramp.evaluation.span_trace",
        "cost_ratio": "offramp.evaluation.cost",
        "elue_macs": "offramp.evaluation.flops",
        "elue_mflops": "offramp.evaluation.flops",
        "elue_score": "offramp.evaluation.elue",
        "evaluate": "offramp.evaluation.run",
        "exit_counts": "offramp.evaluation.cost",
        "exit_logits": "offramp.evaluation.trace",
        "expected_saving": "offramp.evaluation.cost",
        "overall_elue_score": "offramp.evaluation.elue",
        "pareto": "offramp.evaluation.sweep",
        "reference_curve": "offramp.evaluation.elue",
        "speed_up": "offramp.evaluation.cost",
    },
)
"""Results are read, compared and drawn without the model, and so without torch."""
