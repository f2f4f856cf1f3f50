"""Files through Ray Data: the answers of this process, whichever worker is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray_runs

from offramp.prediction.part_folder import MANIFEST, PartFolder
from offramp.prediction.parts import Receipt
from tests.command_line import Result
from tests.prediction.models import model_folder
from tests.prediction.test_folder_run import POLICY, TRAINED, answered, near, tables, typed

Run = Callable[..., Result]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's of itself


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "single", trained=TRAINED, layers=3)


class Killer:
    """Kills a worker with the receipts of some parts: what it is at, and what it had yet to hand over, is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.after, self.seen, self.killed = after, 0, 0
        record = PartFolder.record

        def recording(folder: PartFolder, receipt: Receipt) -> None:
            record(folder, receipt)
            self.seen += 1
            if self.seen == self.after:
                self.killed = ray_runs.workers(ray_runs.FILE_WORKER, os.getpid())[0]
                os.kill(self.killed, signal.SIGKILL)

        monkeypatch.setattr(PartFolder, "record", recording)


@pytest.mark.usefixtures("ray_here")
def test_ray_does_what_is_missing_as_this_process_does(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a worker killed in the middle; and what is there stays as it is."""
    folder, out = tables(tmp_path / "in"), tmp_path / "ray"
    (folder / "f.csv").write_text("id,review,error\n0,a good film,\n1, ,\n")
    command = ("predict", model, folder, "--policy", POLICY, "--keep", "id,error", "--rows-per-part", "5")
    plain = run(*command, "--out", tmp_path / "plain")
    assert "1 of 137 rows have no answer; the first is" in plain.err
    shutil.copytree(tmp_path / "plain", out)
    lost = [*(out / "b").rglob("part-*"), *(out / "f.csv").iterdir(), *(out / "none.csv").iterdir()]
    lost += [out / "a.csv" / "part-000002.jsonl", out / "d.parquet" / "part-000005.jsonl"]
    for path in lost:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("part-*")}
    killer = Killer(monkeypatch, after=3)
    done = run(*command, "--out", out, "--engine", "ray", "--workers", "2")
    assert killer.killed
    assert (killer.seen, done.status) == (len(lost), 2)
    assert done.err.splitlines()[-2:] == plain.err.replace(str(tmp_path / "plain"), str(out)).splitlines()[-2:]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    same_answers(out, tmp_path / "plain")


def same_answers(found: Path, expected: Path) -> None:
    names = {path.relative_to(found).as_posix() for path in found.rglob("*part-*")}
    assert names == {path.relative_to(expected).as_posix() for path in expected.rglob("*part-*")}
    for source in {str(Path(name).parent) for name in names}:
        ours, theirs = answered(found, source), answered(expected, source)
        assert [row["error"] for row in ours] == [row["error"] for row in theirs]
        told = [
            [{**row, "score": row["score"] or 0, "exit_layer": row["exit_layer"] or 0} for row in rows]
            for rows in (ours, theirs)
        ]
        assert typed(told[0]) == near(typed(told[1]))
    sums = [json.loads((folder / MANIFEST).read_text())["finished"] for folder in (found, expected)]
    assert sums[0] == sums[1]


@pytest.mark.usefixtures("ray_here")
def test_what_a_worker_says_is_told(run: Run, model: Path, tmp_path: Path) -> None:
    """In one line, without Ray's own around it."""
    folder = tables(tmp_path / "in")
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").unlink()
    (tmp_path / "model" / "tokenizer.json").unlink()
    refused = run("predict", tmp_path / "model", folder, "--out", tmp_path / "out", "--engine", "ray", "--workers", "1")
    assert refused.status == 2
    assert refused.err.splitlines()[-1].startswith("error: ")
    assert "okenizer" in refused.err
    assert "Ray" not in refused.err
    assert "Traceback" not in refused.err
    few = run("predict", model, folder, "--out", tmp_path / "out", "--engine", "ray", "--workers", "99")
    assert few.err.splitlines()[-1] == "error: 99 workers, but the Ray cluster has room for 4: say --workers 4 or fewer"


def as_without_ray(found: dict[str, Any]) -> bool:
    """Every row came out once, and with the same answer."""
    assert found["status"] == 0
    assert 0 < found["lost_after_rows"] < found["rows"]
    assert found["manifest"]["rows"] == found["rows_out"] == found["rows"]
    assert found["rows_missing_or_too_many"] == found["rows_twice"] == found["rows_with_another_answer"] == 0
    return bool(found["largest_difference_of_scores"] < 1e-5)


@pytest.mark.slow
def test_many_rows_with_a_worker_killed_in_the_middle(tmp_path: Path) -> None:
    assert as_without_ray(ray_runs.files(tmp_path / "work", 200_000))


@pytest.mark.slow
def test_a_machine_that_is_lost(tmp_path: Path) -> None:
    """With its worker, and the parts that waited there."""
    assert as_without_ray(ray_runs.machine_lost(tmp_path / "work", 30_000))
