"""Processes that run cells: in which order, until when, and what they leave of cells that go wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.study import command as study
from benchmarks.study import store
from benchmarks.study.grid import Cell, grid, only
from benchmarks.study.workers import Outcome, Pace, _next, run_all
from tests.benchmarks import pretend_runs


def cell(seed: int, task: str = "rte") -> Cell:
    return Cell("minilm", task, "deebert", seed)


def outcomes(cells: list[Cell], seconds: float | None = None, jobs: int = 1) -> list[Outcome]:
    found: list[Outcome] = []
    run_all(cells, pretend_runs.make_run, jobs, lambda one: -one.seed, found.append, seconds)
    return found


def test_one_process_runs_all_and_goes_on_after_what_fails() -> None:
    """Ordered by work: 1, 2 (raises), 3 (takes its process along), 5 (in a new process)."""
    found = outcomes([cell(5), cell(3), cell(1), cell(2)])
    assert [outcome.cell.seed for outcome in found] == [1, 2, 3, 5]
    first, raised, lost, last = found
    assert first.found is not None
    assert last.found is not None
    assert "ValueError: made to fail" in (raised.error or "")
    assert "status 7" in (lost.error or "")
    assert last.found["process"] != first.found["process"]
    assert last.found["cells"] == 1


def test_every_cell_that_takes_its_process_along_is_told_of() -> None:
    lost = [cell(3, task) for task in ("rte", "mrpc")]
    found = outcomes(lost, jobs=2)
    assert {outcome.cell for outcome in found} == set(lost)
    assert all("status 7" in (outcome.error or "") for outcome in found)


def test_where_no_process_lives_to_answer_not_every_cell_is_tried() -> None:
    found = outcomes([cell(3, task) for task in ("rte", "mrpc", "cola", "sst-2", "imdb")])
    assert len(found) == 2


def test_what_does_not_end_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.study.workers.GRACE", 1)
    begun = time.monotonic()
    assert outcomes([cell(4)], seconds=0.5) == []
    assert time.monotonic() - begun < 30


def test_what_would_not_end_in_time_is_not_begun() -> None:
    long, short = cell(1), cell(2)
    pace = Pace()
    work = {long: 100.0, short: 1.0}.__getitem__
    ends = time.monotonic() + 50
    assert _next([long, short], work, pace, ends) == long  # nothing is known yet
    pace.add(work=10, seconds=10)
    assert _next([long, short], work, pace, ends) == short
    assert _next([long], work, pace, ends) is None
    assert _next([short], work, pace, time.monotonic() - 1) is None
    assert _next([long, short], work, pace, None) == long


def test_the_command_skips_what_is_there_keeps_failures_and_tries_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the work done here: what processes do is tested above."""
    tried: list[str] = []

    def run_here(cells, make_run, jobs, work, on_outcome, seconds):  # type: ignore[no-untyped-def]
        run = pretend_runs.make_run()
        for one in cells:
            tried.append(one.name)
            try:
                on_outcome(Outcome(one, run(one), None, 0.1))
            except ValueError as error:
                on_outcome(Outcome(one, None, f"ValueError: {error}", 0.1))

    monkeypatch.setattr(study, "run_all", run_here)
    asked = ["--data", "d", "--backbones", "b", "--out", str(tmp_path)]
    asked += ["--only", "task=rte", "method=deebert", "backbone=minilm", "seed=1,2"]
    wanted = only(grid(), asked[7:])
    assert study.main(asked) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 cells done, 1 failed, 0 missing"
    assert "made to fail" in store.failure_of(tmp_path, cell(2)).read_text()
    assert tried == [one.name for one in wanted]
    assert study.main(asked) == 1
    assert tried[2:] == [cell(2).name]
    monkeypatch.setattr(pretend_runs, "make_run", lambda: pretend_runs.made)
    assert study.main(asked) == 0
    assert not store.failure_of(tmp_path, cell(2)).exists()
    assert capsys.readouterr().out.splitlines()[-1] == "2 cells done, 0 failed, 0 missing"
    assert study.main([*asked, "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 cells done, 0 failed, 0 missing"
