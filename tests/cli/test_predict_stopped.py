"""`offramp predict` stopped in the middle: by a wrong row, by Ctrl-C, by a reader that has seen enough."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from offramp.engine.host_runner import HostRunner
from offramp.engine.runner import Finished, Packed
from offramp.tasks.tables import read_table
from tests.cli.test_predict import POLICY, TEXTS, Run, answers, lines, models, rows, same

__all__ = ["models", "rows"]  # fixtures


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
def test_a_wrong_row_in_the_middle(run: Run, models: dict[str, Path], rows: Path, format: str) -> None:
    """The answers to the rows before it are there, all of them, as whole lines."""
    if format == "parquet":
        pytest.importorskip("pyarrow")
    text = rows.read_text().splitlines()
    text[280] = "cut short"
    rows.write_text("\n".join(text) + "\n")
    out = rows.with_name(f"answers.{format}")
    refused = run("predict", models["single"], rows, "--out", out, "--policy", POLICY, "--batch-size", 4)
    assert refused.status == 2
    assert refused.err.startswith(f"error: {rows}:281: row cut short, 1 of 3 cells: expected 'id', 'review', 'label'")
    assert refused.err.endswith(f"; {out} holds the answers to the 279 rows before\n")
    assert refused.err.count("\n") == 1
    found = [record.values for record in read_table(out)]
    typed = [{**row, "score": float(row["score"]), "exit_layer": int(row["exit_layer"])} for row in found]
    assert same(typed, answers(models["single"], TEXTS[:279]))


def test_a_wrong_first_row_leaves_no_file(run: Run, models: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("review\na,b\n")
    refused = run("predict", models["single"], tmp_path / "rows.csv", "--out", tmp_path / "a.csv")
    assert (refused.status, refused.err) == (
        2,
        f"error: {tmp_path / 'rows.csv'}:2: row too long, 2 of 1 cells: expected 'review'\n",
    )
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet", ""])
def test_ctrl_c(run: Run, models: dict[str, Path], rows: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    out = rows.with_name(f"answers.{format}") if format else None
    submit, calls = HostRunner.submit, []

    def stopping(self: HostRunner, rows: Packed) -> list[Finished]:
        calls.extend(rows.tickets)
        if len(calls) > 270:
            raise KeyboardInterrupt
        return submit(self, rows)

    options = ["--out", out] if out else []
    with monkeypatch.context() as patch:
        patch.setattr(HostRunner, "submit", stopping)
        patch.setattr("offramp.cli.predict.ROWS_AT_A_TIME", 64)  # or how far it was read ahead would decide
        stopped = run("predict", models["single"], rows, *options, "--policy", POLICY, "--batch-size", 2)
    assert stopped.status == 130
    where = f"{out} holds their answers" if out else "their answers were written"
    more = "; --resume goes on from there" if format in ("jsonl", "csv", "tsv") else ""
    told = re.fullmatch(rf"stopped after (\d+) rows: {re.escape(where)}, whole lines only{more}\n", stopped.err)
    assert told, stopped.err
    written = int(told[1])
    assert 0 < written <= 270
    found = [record.values for record in read_table(out)] if out else lines(stopped)
    typed = [{**row, "score": float(row["score"]), "exit_layer": int(row["exit_layer"])} for row in found]
    assert same(typed, answers(models["single"], TEXTS[:written]))


def test_a_ctrl_c_that_python_drops(
    run: Run, models: dict[str, Path], rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in a destructor comes to nothing, and the signal may arrive there."""

    class Dying:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    submit, calls = HostRunner.submit, []

    def dropping(self: HostRunner, rows: Packed) -> list[Finished]:
        calls.append(1)
        if len(calls) == 2:
            Dying()
        return submit(self, rows)

    monkeypatch.setattr(HostRunner, "submit", dropping)
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    stopped = run("predict", models["single"], rows, "--out", tmp_path / "a.jsonl", "--batch-size", 2)
    assert stopped.status == 130
    assert len(calls) < len(TEXTS) // 2, "it went on to the end"
    assert stopped.err.startswith("stopped after ")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "offramp", "predict", *map(str, arguments)]


def many_rows(path: Path) -> Path:
    path.write_text("review\n" + "a good film\n" * 200_000)
    return path


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_to_a_real_process(models: dict[str, Path], tmp_path: Path, kind: signal.Signals) -> None:
    data, out = many_rows(tmp_path / "rows.csv"), tmp_path / "answers.csv"
    with subprocess.Popen(command(models["single"], data, "--out", out), stderr=subprocess.PIPE, text=True) as running:
        for _ in range(600):
            if out.is_file() and out.stat().st_size > 1000:
                break
            time.sleep(0.05)
        running.send_signal(kind)
        err = running.communicate()[1]
    assert running.returncode == 130, err
    told = re.search(rf"stopped after ([\d,]+) rows: {re.escape(str(out))} holds their answers, .*\n$", err)
    assert told, err
    assert out.read_bytes().endswith(b"\n")
    assert len(list(read_table(out))) == int(told[1].replace(",", "")) > 0


def test_a_reader_that_has_seen_enough(models: dict[str, Path], tmp_path: Path) -> None:
    data = many_rows(tmp_path / "rows.csv")
    with subprocess.Popen(command(models["single"], data), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        first = running.stdout.readline()
        running.stdout.close()
        err = running.stderr.read()
    assert json.loads(first)["label"] in ("bad", "good")
    assert err == b""
