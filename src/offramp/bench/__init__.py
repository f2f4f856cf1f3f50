"""Measures how fast a model answers here: with exits and without, beside what a user could run instead."""

from offramp.bench.results import BenchResults
from offramp.bench.run import Bench
from offramp.bench.verdict import verdict
from offramp.bench.workload import SHAPES

__all__ = ["SHAPES", "Bench", "BenchResults", "verdict"]
