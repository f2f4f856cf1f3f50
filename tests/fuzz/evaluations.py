"""What commands leave for each other: results, traces, times, plans, and folders of answers."""

from __future__ import annotations

import dataclasses
import io
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from offramp.bench.results import BenchResults
from offramp.bench.tables import bench_table
from offramp.bench.verdict import verdict
from offramp.errors import OfframpError
from offramp.evaluation.comparison import compare
from offramp.evaluation.elue import reference_curve
from offramp.evaluation.results import FORMAT
from offramp.evaluation.trace_base import TraceBase
from offramp.prediction.part_folder import MANIFEST, RECEIPTS, PartFolder
from offramp.prediction.parts import Job, Receipt, Source
from offramp.tasks.rows import Columns
from offramp.training.plan import Plan, read_plan
from tests.bench.made_results import made_results, made_workload
from tests.evaluation.made_traces import gated_trace, random_trace
from tests.evaluation.sample_results import sample_gates, sample_results
from tests.fuzz.contract import Target

NOWHERE = Console(file=io.StringIO())
SETTINGS = {"weights": "abc", "policy": "fixed(2)"}


def results() -> list[bytes]:
    made = [
        sample_results(points=3, depth=3, rows=20, policies=("entropy", "patience"), asked=True),
        sample_results(points=2, depth=2, rows=20, policies=("entropy",), labelled=False, gates=sample_gates(2, 2, 3)),
    ]
    return [json.dumps({"format": FORMAT, **dataclasses.asdict(one)}).encode() for one in made]


def read_results(path: Path) -> None:
    found = compare([path])
    found.groups()
    found.averages()


def traces() -> list[bytes]:
    with TemporaryDirectory() as folder:
        made = [random_trace(3, 6), random_trace(2, 5, 1), random_trace(2, 5, labelled=False), gated_trace()]
        return [trace.save(Path(folder) / "trace.npz").read_bytes() for trace in made]


def read_trace(path: Path) -> None:
    trace = TraceBase.load(path)
    with suppress(OfframpError):  # there may be no policy for it
        trace.results()


def abouts() -> list[bytes]:
    """What a trace says beside its arrays."""
    found = []
    for data in traces():
        with np.load(io.BytesIO(data)) as stored:
            found.append(str(stored["about"]).encode())
    return found


def read_about(path: Path) -> None:
    """A trace file is made around the text, so that its checksums are right."""
    text = path.read_bytes().decode("utf-8", "replace")
    trace = random_trace(3, 6)
    np.savez(path.with_suffix(".npz"), about=text, logits=trace.logits, lengths=trace.lengths, labels=trace.labels)
    read_trace(path.with_suffix(".npz"))


def read_times(path: Path) -> None:
    found = BenchResults.read(path)
    NOWHERE.print(bench_table(found))
    for workload in found.workloads:
        verdict(workload)


def plans() -> list[bytes]:
    plan = Plan("bert-base-uncased", {"name": "own", "data": "x.csv"}, {"name": "elbert"}, max_length=64)
    return [json.dumps(plan.to_json()).encode()]


def read_run(path: Path) -> None:
    plan = read_plan(path)
    plan.differs_from(plan)


def begun(folder: Path) -> None:
    part_folder(folder).record(Receipt("a.csv", 0, 5, True, 1, "row 3 is empty"))
    (folder / "a.csv").mkdir()
    (folder / "a.csv" / "part-000000.jsonl").write_text("")


def part_folder(folder: Path) -> PartFolder:
    job = Job("model", None, (), str(folder), "jsonl", 10, {})
    sources = [Source(name, str(folder / name), Columns("text"), 10, 20) for name in ("a.csv", "b.csv")]
    return PartFolder(job, SETTINGS, sources)


def read_parts(path: Path) -> None:
    folder = path.parent
    other = {MANIFEST: RECEIPTS, RECEIPTS: MANIFEST}[path.name]
    kept = (folder / other).read_bytes() if (folder / other).exists() else None
    try:
        opened = part_folder(folder)
        opened.missing()
        opened.totals()
        opened.first_error()
    finally:
        if kept is not None:
            (folder / other).write_bytes(kept)


def manifests() -> list[bytes]:
    with TemporaryDirectory() as folder:
        begun(Path(folder))
        return [(Path(folder) / MANIFEST).read_bytes()]


def receipts() -> list[bytes]:
    lines: list[Any] = [Receipt("a.csv", 0, 5, True, 1, "row 3 is empty"), Receipt("b.csv", 1, 10, False, 0, None)]
    return ["".join(json.dumps(line._asdict()) + "\n" for line in lines).encode()]


def read_curve(path: Path) -> None:
    reference_curve("elue/sst-2", path)


CURVE = {"tasks": {"elue/sst-2": {"metric": "accuracy", "points": [[100.0, 80.5], [200.0, 90.5]]}}}
TARGETS = {
    "results": Target("results.json", read_results, results, shape="json"),
    "trace": Target("trace.npz", read_trace, traces),
    "trace-about": Target("about.json", read_about, abouts, shape="json", blames="folder"),
    "times": Target(
        "bench.json", read_times, lambda: [json.dumps(made_results(made_workload()).as_json()).encode()], shape="json"
    ),
    "plan": Target("plan.json", read_run, plans, shape="json"),
    "manifest": Target(MANIFEST, read_parts, manifests, begun, "json", "folder"),
    "receipts": Target(RECEIPTS, read_parts, receipts, begun, "lines", "folder"),
    "curve": Target("curve.json", read_curve, lambda: [json.dumps(CURVE).encode()], shape="json"),
}
