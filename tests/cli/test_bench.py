"""`offramp bench`, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offramp.bench import BenchResults
from offramp.bench.run import Bench
from tests.command_line import Result
from tests.generated import reviews_file
from tests.prediction.models import model_folder

Run = Callable[..., Result]
QUICK = ("--device", "cpu", "--seconds", "0", "--batch-sizes", "2,1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


def test_a_shape(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    done = run("bench", "tiny", *QUICK, "--rows", "12")
    assert done.status == 0, done.err
    assert "under scripted exits" in done.out
    for sentence in ("Batch 1: ", "Batch 2: ", "Stream: "):
        assert sum(line.startswith(sentence) for line in done.out.splitlines()) == 1
    results = BenchResults.read(tmp_path / "bench-tiny" / "bench.json")
    assert [(workload.batch_size, workload.rows) for workload in results.workloads] == [(1, 8), (2, 8), (None, 12)]
    names = [timing.name for timing in results.workloads[1].timings]
    ours = ["offramp fp32, exits", "offramp fp32", "offramp int8, exits", "offramp int8"]
    assert names[:8] == [
        *ours, "transformers fp32", "transformers fp32, sorted", "ONNX Runtime fp32", "ONNX Runtime int8",
    ]  # fmt: skip
    assert "transformers fp32, sorted" not in [timing.name for timing in results.workloads[0].timings]
    for workload in results.workloads:
        best = min(workload.timings, key=lambda timing: 1 / timing.texts_per_second)
        assert workload.fastest == best.name, "in one round, both are the same"
        assert all(ratio >= 1 for ratio in workload.faster_than.values())
        assert 1 <= workload.mean_layers <= 4
    assert (tmp_path / "bench-tiny" / "bench.png").is_file()


def test_own_texts_and_the_folders_policy(run: Run, folder: Path, tmp_path: Path) -> None:
    (folder / "policy.json").write_text(json.dumps({"policy": "fixed", "layer": 2}))
    reviews_file(tmp_path / "new.csv", 9)
    done = run("bench", folder, *QUICK, "--data", tmp_path / "new.csv", "--precision", "fp32", "--json")
    assert done.status == 0, done.err
    printed = json.loads(done.out)
    assert (printed["policy"], printed["settings"]["rows"]) == ("fixed(2)", str(tmp_path / "new.csv"))
    assert {workload["mean_layers"] for workload in printed["workloads"]} == {2}
    assert [gain["precision"] for gain in printed["workloads"][0]["gains"]] == ["fp32"]
    kept = json.loads((folder / "bench" / "bench.json").read_text())
    assert kept == printed


def test_lines_of_text_and_batches_larger_than_they_are(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a good film\n\nthe bad plot\na film\n")
    out = tmp_path / "out"
    done = run(
        "bench", folder, *QUICK[:-1], "3,8", "--data", tmp_path / "texts.txt", "--policy", "fixed(1)", "--out", out
    )
    assert done.status == 0, done.err
    assert "not measured: batch 8 (there are 3 rows)" in done.out
    assert [workload.rows for workload in BenchResults.read(out / "bench.json").workloads] == [3, 3]


def test_a_named_column_and_a_length(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("words,other\n" + "a good film the bad plot a film the plot,a\n" * 3)
    options = ("--data", tmp_path / "new.csv", "--text", "words", "--max-length", "8", "--policy", "fixed(1)", "--json")
    done = run("bench", folder, *QUICK[:-1], "3", *options)
    assert done.status == 0, done.err
    assert json.loads(done.out)["mean_tokens"] == 8


def test_ctrl_c_keeps_what_was_measured(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure: Any = Bench._measure

    def stopped(self: Bench, *arguments: Any) -> Any:
        if self.workloads:
            raise KeyboardInterrupt
        return measure(self, *arguments)

    monkeypatch.setattr(Bench, "_measure", stopped)
    done = run("bench", folder, *QUICK, "--rows", "8", "--precision", "fp32")
    assert done.status == 130
    path = folder / "bench" / "bench.json"
    assert done.err.strip() == f"stopped after 1 of 3 batch sizes: {path} holds what was measured"
    assert [workload.batch_size for workload in BenchResults.read(path).workloads] == [1]


def test_ctrl_c_before_anything_was_measured(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "_make_contestants", stopped)
    done = run("bench", folder, *QUICK)
    assert (done.status, done.err.splitlines()[-1]) == (130, "stopped after 0 of 3 batch sizes")
    assert not (folder / "bench").exists()


def test_bad_input(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "file").write_text("")
    for arguments, message in {
        ("bart-base",): "neither a folder nor a shape: name a model folder, or bert-base",
        (folder, "--batch-sizes", "1,x"): "--batch-sizes 1,x: expected numbers from 1",
        (folder, "--batch-sizes", "0"): "expected numbers from 1",
        (folder, "--policy", "entropi(1)"): "entropi",
        (folder, "--policy", "fixed(9)"): "no exit there",
        (folder, "--data", tmp_path / "nowhere.csv"): "does not exist",
        (folder, "--data", tmp_path / "empty.txt"): "holds no texts",
        (folder, "--out", tmp_path / "file" / "below"): "cannot be made",
        (folder, "--precision", "int4"): "precision 'int4'",
        ("tiny", "--data", tmp_path / "empty.txt"): "a shape has none",
        (folder, "--max-length", "64"): "--max-length is for own texts: give --data",
        (folder, "--data", tmp_path / "empty.txt", "--text", "words"): "--text names a column",
    }.items():
        done = run("bench", *arguments)
        assert done.status == 2, arguments
        assert done.err.splitlines()[-1].startswith("error: ")
        assert message in done.err
        assert len(done.err.strip().splitlines()) == 1
