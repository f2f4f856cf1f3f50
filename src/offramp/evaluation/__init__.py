"""Measuring what exits save."""

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
