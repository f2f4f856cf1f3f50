"""Measuring what exits save."""

from offramp.evaluation.cost import cost_ratio, exit_counts, expected_saving, speed_up
from offramp.evaluation.flops import elue_macs, elue_mflops

__all__ = ["cost_ratio", "elue_macs", "elue_mflops", "exit_counts", "expected_saving", "speed_up"]
