"""Results of a run that never was."""

from __future__ import annotations

from typing import Any

from offramp.bench.results import BenchResults, ExitGain, Timing, Workload

NAMES = ("offramp fp32, exits", "offramp fp32", "transformers fp32", "ONNX Runtime int8")


def made_workload(**changes: Any) -> Workload:
    timings = [
        Timing(name, name.split()[-1], 400.0 / (place + 1), 80.0 * (place + 1), None, 5)
        for place, name in enumerate(NAMES)
    ]
    made: dict[str, Any] = {
        "batch_size": 32,
        "rows": 64,
        "rounds": 5,
        "mean_layers": 5.0,
        "ideal": 2.4,
        "timings": timings,
        "gains": [ExitGain("fp32", 2.0)],
        "fastest": NAMES[0],
        "faster_than": {name: float(place) for place, name in enumerate(NAMES, start=1) if place > 1},
    }
    return Workload(**{**made, **changes})


def made_results(*workloads: Workload) -> BenchResults:
    machine = {"processor": "an abacus", "cores": 2, "threads": 2}
    return BenchResults(
        "bert-base", "entropy(0.1)", 12, 26.0, list(workloads), {"OpenVINO": "no"}, {"machine": machine}
    )
