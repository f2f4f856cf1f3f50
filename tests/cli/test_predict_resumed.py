"""`offramp predict --resume`: a file of answers that was begun comes out as if nobody had stopped."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from offramp.prediction.begun_file import COMPARED
from offramp.tasks.tables import read_table
from tests.cli.test_predict import POLICY, TEXTS, Run, models, rows

__all__ = ["models", "rows"]  # fixtures

ODD = ['said "no",\nand left', "\t tabs, and\r\nlines", '"', "ünïcödé 🎬", "\\ud83c"]
"""Cells that have to be quoted or escaped."""


@pytest.fixture
def odd_rows(rows: Path) -> Path:
    """Every third id is one that takes several lines, or quotes."""
    with rows.open("w", newline="") as file:
        ids = [ODD[i % len(ODD)] if i % 3 == 0 else i for i in range(len(TEXTS))]
        csv.writer(file).writerows([("id", "review"), *zip(ids, TEXTS, strict=True)])
    return rows


def command(model: Path, data: Path, out: Path, *more: str) -> tuple[object, ...]:
    return ("predict", model, data, "--out", out, "--policy", POLICY, "--keep", "id,review", *more)


def without_scores(path: Path) -> list[dict[str, object]]:
    """Other batches may round a score's last digit otherwise."""
    return [{name: cell for name, cell in record.values.items() if name != "score"} for record in read_table(path)]


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv"])
@pytest.mark.parametrize("share", [0.002, 0.3, 0.5001, 1.0])
def test_whatever_was_written_it_goes_on(
    run: Run, models: dict[str, Path], odd_rows: Path, format: str, share: float
) -> None:
    whole, out = odd_rows.with_name(f"whole.{format}"), odd_rows.with_name(f"out.{format}")
    assert run(*command(models["single"], odd_rows, whole)).status == 0
    written = whole.read_bytes()
    out.write_bytes(written[: int(share * len(written))])  # as a kill leaves it, in the middle of a row
    begun = out.read_bytes()
    done = run(*command(models["single"], odd_rows, out, "--resume"))
    assert done.status == 0, done.err
    assert without_scores(out) == without_scores(whole)
    kept = begun[: begun.rfind(b"\n", 0, len(begun) // 2) + 1]
    assert out.read_bytes().startswith(kept), "what was there stays"
    assert f"{out}: 300 answers under" in done.err
    assert ("rows already: going on" in done.err) == (share > 0.002)


def test_a_file_that_is_not_there_is_begun(run: Run, models: dict[str, Path], rows: Path) -> None:
    out = rows.with_name("out.csv")
    assert run(*command(models["single"], rows, out, "--resume")).status == 0
    assert len(without_scores(out)) == 300


def test_a_run_that_was_stopped_by_a_wrong_row(run: Run, models: dict[str, Path], rows: Path) -> None:
    right = rows.read_text()
    rows.write_text(right.replace("\n280,", "\ncut short\n280,"))
    out = rows.with_name("out.jsonl")
    assert run(*command(models["single"], rows, out)).status == 2
    rows.write_text(right)
    assert run(*command(models["single"], rows, out, "--resume")).status == 0
    assert [row["id"] for row in without_scores(out)] == [str(i) for i in range(300)]


def wrong_model(models: dict[str, Path], data: Path, out: Path) -> tuple[object, ...]:
    return ("predict", models["untold"], data, "--out", out, "--policy", "fixed(1)", "--text", "review", "--resume",
            "--keep", "id,review")  # fmt: skip


def other_input(models: dict[str, Path], data: Path, out: Path) -> tuple[object, ...]:
    text = data.read_text().splitlines()
    data.write_text("\n".join([text[0], *text[2:]]) + "\n")
    return command(models["single"], data, out, "--resume")


def short_input(models: dict[str, Path], data: Path, out: Path) -> tuple[object, ...]:
    data.write_text("\n".join(data.read_text().splitlines()[:40]) + "\n")
    return command(models["single"], data, out, "--resume")


def other_columns(models: dict[str, Path], data: Path, out: Path) -> tuple[object, ...]:
    return ("predict", models["single"], data, "--out", out, "--policy", POLICY, "--resume")


def overwriting(models: dict[str, Path], data: Path, out: Path) -> tuple[object, ...]:
    return command(models["single"], data, out, "--resume", "--overwrite")


@pytest.mark.parametrize("format", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (wrong_model, "was begun with another model, policy or input: in row"),
        (other_input, "was begun with another model, policy or input: in row 35 id is"),
        (short_input, "holds 50 answers, and"),
        (other_columns, "cannot be gone on with: its columns are"),
        (overwriting, "which --overwrite would replace"),
    ],
)
def test_another_run_is_refused(
    run: Run, models: dict[str, Path], rows: Path, format: str, wrong: object, message: str
) -> None:
    out = rows.with_name(f"out.{format}")
    assert run(*command(models["single"], rows, out)).status == 0
    begun = b"".join(out.read_bytes().splitlines(keepends=True)[: 50 + (format == "csv")]) + b"half a r"
    out.write_bytes(begun)
    refused = run(*wrong(models, rows, out))  # type: ignore[operator]
    assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
    assert message in refused.err
    assert out.read_bytes() == begun, "nothing was lost"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("out.parquet", b"PAR1", "cannot be gone on with once it was closed"),
        ("out.csv", b"my,own\n1,2\n", "its columns are my,own"),
        ("out.csv", b"id,review,label,score,exit_layer\n1,2\n", "row 1 has 2 cells"),
        ("out.jsonl", b"no json\n", "cannot be gone on with"),
        ("out.jsonl", b"[1]\n", "its columns are not id,review,label"),
        ("out.jsonl", b"\xff\xfe\n", "cannot be gone on with"),
    ],
)
def test_a_file_of_something_else(
    run: Run, models: dict[str, Path], rows: Path, name: str, content: bytes, message: str
) -> None:
    out = rows.with_name(name)
    out.write_bytes(content)
    refused = run(*command(models["single"], rows, out, "--resume"))
    assert (refused.status, refused.err.count("\n")) == (2, 1), refused.err
    assert message in refused.err
    assert out.read_bytes() == content


def test_rows_without_an_answer_go_on_too(run: Run, models: dict[str, Path], rows: Path) -> None:
    """They stand in the file as others do, and those that come now are counted."""
    text = rows.read_text().splitlines()
    for number in (10, 95, 250):
        text[number] = f"{number},,?"
    rows.write_text("\n".join(text) + "\n")
    out = rows.with_name("out.jsonl")
    assert run(*command(models["single"], rows, out)).status == 2
    out.write_bytes(b"".join(out.read_bytes().splitlines(keepends=True)[:100]))
    assert 100 - COMPARED < 95 <= 100, "one of them is compared"
    refused = run(*command(models["single"], rows, out, "--resume"))
    assert "1 of 200 rows have no answer; the first is row 250" in refused.err
    assert [json.loads(line)["label"] is None for line in out.read_text().splitlines()].count(True) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{rows}", "--resume"), "--resume goes on with the file of --out"),
        (("{folder}", "--out", "out", "--resume"), "the same command goes on"),
    ],
)
def test_where_it_has_no_meaning(
    run: Run, models: dict[str, Path], rows: Path, arguments: tuple[str, ...], message: str
) -> None:
    given = [one.format(rows=rows, folder=rows.parent) for one in arguments]
    refused = run("predict", models["single"], *given)
    assert refused.status == 2
    assert message in refused.err
