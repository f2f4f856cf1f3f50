"""`offramp predict`, as a user types it: a text, a file, a pipe."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offramp
from offramp.prediction import predict
from offramp.tasks.tables import read_table
from tests.command_line import Result
from tests.generated import reviews
from tests.prediction.models import model_folder

Run = Callable[..., Result]
SINGLE = {"name": "reviews", "text": "review", "text_pair": None}
PAIRS = {"name": "pairs", "text": "premise", "text_pair": "hypothesis"}
TEXTS = [text for text, _ in reviews(300)]
POLICY = "entropy(0.4)"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("models")
    return {
        "single": model_folder(place / "single", trained=SINGLE),
        "pairs": model_folder(place / "pairs", trained=PAIRS),
        "untold": model_folder(place / "untold"),
        "number": model_folder(place / "number", ()),
    }


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "review", "label"), *((i, text, "?") for i, text in enumerate(TEXTS))])
    return path


def answers(model: Path, texts: list[Any], policy: str = POLICY) -> list[dict[str, Any]]:
    return [
        {"label": one.label, "score": one.score and round(one.score, 6), "exit_layer": one.exit_layer}
        for one in predict(model, texts, policy)
    ]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> bool:
    """Other batches may round the last digit otherwise."""
    numbers = [{**row, "score": pytest.approx(row["score"], abs=1e-5)} for row in expected]
    return [{name: row[name] for name in ("label", "score", "exit_layer")} for row in found] == numbers


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


ABSENT = ["missing/reviews.txt", "reviews.txt", "missing.csv", "a/b.json.gz", "~/x.csv", "/home/me/my reviews.csv"]
ABSENT += ["../none", "/nowhere/texts", "src/nofile"]


@pytest.mark.parametrize("name", ABSENT)
def test_a_file_that_is_not_there_is_no_text(run: Run, models: dict[str, Path], name: str) -> None:
    refused = run("predict", models["single"], name)
    assert (refused.status, refused.out) == (2, "")
    assert name in refused.err


@pytest.mark.parametrize("text", ["good/bad", "fine.", "e.g. this", "good", "and/or.maybe", "U.S.A/x.y"])
def test_a_word_is_a_text(run: Run, models: dict[str, Path], text: str) -> None:
    assert lines(run("predict", models["single"], text))[0]["text"] == text


def test_a_text(run: Run, models: dict[str, Path]) -> None:
    done = run("predict", models["single"], "a good film", "--policy", POLICY)
    assert done.status == 0, done.err
    assert same(lines(done), answers(models["single"], ["a good film"]))
    assert lines(done)[0]["text"] == "a good film"


@pytest.mark.parametrize("model", ["pairs", "untold"])
def test_a_pair(run: Run, models: dict[str, Path], model: str) -> None:
    done = run("predict", models[model], "a good film", "--pair", "it is bad", "--policy", "fixed(2)")
    assert done.status == 0, done.err
    assert same(lines(done), answers(models[model], [("a good film", "it is bad")], "fixed(2)"))


def test_a_number(run: Run, models: dict[str, Path]) -> None:
    [answer] = lines(run("predict", models["number"], "a good film"))
    assert isinstance(answer["label"], float)
    assert answer["score"] is None


@pytest.mark.parametrize("format", ["jsonl", "csv", "tsv", "parquet"])
def test_a_file(run: Run, models: dict[str, Path], rows: Path, format: str, tmp_path: Path) -> None:
    if format == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"answers.{format}"
    done = run("predict", models["single"], rows, "--out", out, "--policy", POLICY, "--keep", "id, label,id")
    assert done.status == 0, done.err
    assert f"{out}: 300 answers under {POLICY}" in done.err
    table = read_table(out)
    assert set(table.columns) == {"id", "input_label", "label", "score", "exit_layer"}
    found = [record.values for record in table]
    assert [row["id"] for row in found] == [str(i) for i in range(300)]
    assert {row["input_label"] for row in found} == {"?"}
    typed = [{**row, "score": float(row["score"]), "exit_layer": int(row["exit_layer"])} for row in found]
    assert same(typed, answers(models["single"], TEXTS))


def test_columns(run: Run, models: dict[str, Path], tmp_path: Path) -> None:
    """Those the model was trained on, those named, or those found by name, whatever else looks like a label."""
    path = tmp_path / "rows.jsonl"
    row = {"hypothesis": "it is bad", "premise": "a good film", "label": 1, "score": 0.5, "other": "the plot"}
    path.write_text(json.dumps(row) + "\n")
    expected = answers(models["pairs"], [("a good film", "it is bad")], "fixed(5)")
    for model, options in {
        "pairs": (),
        "untold": (),
        "single": ("--text", "other"),
    }.items():
        done = run("predict", models[model], path, *options)
        assert done.status == 0, done.err
        if not options:
            assert same(lines(done), expected)
    assert same(
        lines(run("predict", models["pairs"], path, "--text", "premise", "--text-pair", "hypothesis")), expected
    )


def pipe(monkeypatch: pytest.MonkeyPatch, text: str | bytes) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


PIPES = {
    "lines": ("", "a good film\nit is, bad\n"),
    "lines by name": ("lines", "a good film\r\nit is, bad"),
    "jsonl": ("jsonl", '{"review": "a good film"}\n{"review": "it is, bad"}\n'),
    "csv": ("csv", 'id,review\n1,a good film\n2,"it is, bad"\n'),
    "tsv": ("tsv", "id\treview\n1\ta good film\n2\tit is, bad\n"),
}


@pytest.mark.parametrize(("format", "text"), PIPES.values(), ids=PIPES.keys())
def test_a_pipe(run: Run, models: dict[str, Path], format: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, text)
    done = run("predict", models["single"], "-", *(["--format", format] if format else []), "--policy", POLICY)
    assert done.status == 0, done.err
    assert same(lines(done), answers(models["single"], ["a good film", "it is, bad"]))


def test_a_pipe_of_pairs(run: Run, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, "a good film\tit is bad\n")
    done = run("predict", models["pairs"], "-")
    assert same(lines(done), answers(models["pairs"], [("a good film", "it is bad")], "fixed(5)"))


def test_a_pipe_is_answered_line_by_line(
    run: Run, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever feeds the pipe sees the answer to a line before giving the next."""
    given, seen = 0, 0

    class Slow(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readline(self, size: int | None = -1) -> bytes:
            nonlocal given, seen
            late = time.monotonic() + 30
            while seen < given and time.monotonic() < late:
                seen += len(capsys.readouterr().out.splitlines())
                time.sleep(0.01)
            given += 1
            return b"a film\n" if given <= 6 else b""

    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": Slow()}))
    run("predict", models["single"], "-")
    assert seen == 6


def test_an_empty_pipe(run: Run, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, "")
    assert run("predict", models["single"], "-") == Result(0, "", "")
    pipe(monkeypatch, "")
    refused = run("predict", models["single"], "-", "--format", "csv")
    assert (refused.status, refused.err) == (2, "error: standard input is empty\n")


WRONG_PIPES = [
    ("single", "", b"a film\n\xff\n", "standard input:2: not UTF-8"),
    ("single", "jsonl", '{"review": "a"}\n{"review": \n', "standard input:2: not JSON"),
    ("single", "csv", 'review,id\na,1\n"b\n', "standard input:3: a quoted field that does not end"),
]


NO_TEXTS = [
    ("single", "", "a film\n\nthe plot\n", "standard input:2: an empty line: expected a text"),
    ("single", "", "a film\n \t\nthe plot\n", "standard input:2: an empty line: expected a text"),
    ("pairs", "", "a\tb\na film\nc\td\n", "standard input:2: expected two texts with a tab between them"),
    ("pairs", "", "a\tb\na\tb\tc\nc\td\n", "standard input:2: expected two texts with a tab between them"),
    ("pairs", "", "a\tb\na film\t\nc\td\n", "standard input:2: expected two texts with a tab between them"),
    ("single", "jsonl", '{"review": "a"}\n{"reviw": "b"}\n{"review": "c"}\n', "standard input:2: 'review' is empty"),
    ("single", "csv", "review\na\n  \nb\n", "standard input:3: 'review' is empty"),
]


@pytest.mark.parametrize(("model", "format", "text", "message"), NO_TEXTS)
def test_a_row_without_a_text_has_no_answer_and_the_others_do(
    run: Run,
    models: dict[str, Path],
    model: str,
    format: str,
    text: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe(monkeypatch, text)
    told = run("predict", models[model], "-", *(["--format", format] if format else []))
    assert told.status == 2
    assert told.err.startswith(f"error: 1 of 3 rows have no answer; the first is row 2: {message}")
    assert [row["label"] is None for row in lines(told)] == [False, True, False]


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_file_of_plain_text(run: Run, models: dict[str, Path], tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"my texts.txt{packed}"
    path.write_bytes(gzip.compress(b"a film\r\nthe plot\n") if packed else b"a film\r\nthe plot\n")
    done = run("predict", models["single"], path, "--policy", POLICY)
    assert done.status == 0
    assert same(lines(done), answers(models["single"], ["a film", "the plot"]))
    refused = run("predict", models["single"], path, "--text", "review")
    assert (refused.status, refused.err) == (2, f"error: --text names a column, and {path} is plain text\n")


@pytest.mark.parametrize(("model", "format", "text", "message"), WRONG_PIPES)
def test_wrong_lines_in_a_pipe(
    run: Run,
    models: dict[str, Path],
    model: str,
    format: str,
    text: str | bytes,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe(monkeypatch, text)
    refused = run("predict", models[model], "-", *(["--format", format] if format else []))
    assert refused.status == 2
    assert refused.err.startswith(f"error: {message}")
    assert refused.err.endswith("; answers were written to the 1 rows before\n")
    assert len(lines(refused)) == 1


def test_the_folders_own_policy(run: Run, models: dict[str, Path], tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model")
    assert lines(run("predict", folder, "a film"))[0]["exit_layer"] == 5
    (folder / "policy.json").write_text('{"policy": "fixed", "layer": 3}')
    assert lines(run("predict", folder, "a film"))[0]["exit_layer"] == 3
    (folder / "policy.json").write_text("{")
    refused = run("predict", folder, "a film")
    assert refused.status == 2
    assert refused.err.startswith(f"error: {folder / 'policy.json'} holds no policy")


def test_overwriting(run: Run, models: dict[str, Path], rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    out.write_text("the old one")
    refused = run("predict", models["single"], rows, "--out", out)
    assert (refused.status, out.read_text()) == (2, "the old one")
    assert run("predict", models["single"], rows, "--out", out, "--overwrite").status == 0
    assert len(list(read_table(out))) == 300
    before = rows.read_bytes()
    refused = run("predict", models["single"], rows, "--out", rows, "--overwrite")
    assert refused.err == f"error: {rows} is the input: name another file for the answers\n"
    assert rows.read_bytes() == before


WRONG = [
    (("{single}",), "nothing to answer: give a file, a text, or - for standard input"),
    (("{single}", ""), "the text is empty"),
    (("{single}", "   "), "the text is empty"),
    (("{single}", "a film", "--pair", "the plot"), "the model answers single texts: leave --pair out"),
    (("{pairs}", "a film"), "the model answers pairs of texts: give the second text with --pair"),
    (("{pairs}", "a film", "--pair", " "), "the text is empty"),
    (("{single}", "missing.csv"), "missing.csv does not exist"),
    (("{single}", "{rows}", "--pair", "x"), "--pair is for a text given as an argument"),
    (("{single}", "{rows}", "--format", "csv"), "--format is of standard input"),
    (("{single}", "{rows}", "--text", "reviews"), "there is no column 'reviews'"),
    (("{single}", "{rows}", "--keep", "idd"), "there is no column 'idd'"),
    (
        ("{single}", "{rows}", "--text", "id", "--text-pair", "review"),
        "the model answers single texts: name the column",
    ),
    (("{pairs}", "{rows}"), "the model answers pairs of texts: name the columns with --text and --text-pair"),
    (("{single}", "{rows}", "--out", "answers.xlsx"), "answers.xlsx: answers are written as"),
    (("{single}", "a film", "--keep", "id"), "--keep is for files, and 'a film' is none"),
    (("{single}", "-", "--keep", "id"), "--keep names a column: say --format csv, tsv or jsonl"),
    (("{single}", "-", "--format", "xml"), "format 'xml': expected one of"),
    (("{single}", "a film", "--policy", "entropie(1)"), "unknown policy 'entropie'"),
    (("{single}", "a film", "--policy", "fixed(9)"), "no exit there"),
    (("{single}", "a film", "--policy", "fixed(1)", "--policy", "fixed(2)"), "one policy at a time"),
    (("{single}", "a film", "--device", "abacus"), "device 'abacus'"),
    (("{single}", "a film", "--max-length", "4"), "max length 4: the model takes 8 to 40 tokens"),
    (("{single}", "a film", "--split", "test"), "are for upload files: give --submission FOLDER, too"),
    (("{single}/nothing", "a film"), "nothing"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_bad_input(
    run: Run, models: dict[str, Path], rows: Path, arguments: tuple[str, ...], message: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(rows.parent)
    refused = run("predict", *(argument.format(rows=rows, **models) for argument in arguments))
    assert refused.status == 2, refused.err
    assert refused.err.startswith("error: ")
    assert message in refused.err
    assert refused.err.count("\n") == 1
    assert [path.name for path in rows.parent.iterdir()] == ["rows.csv"]


def test_in_python(models: dict[str, Path]) -> None:
    answer = offramp.predict(models["single"], ["a good film"], "fixed(2)")
    assert answer == predict(offramp.load(models["single"]), ["a good film"], "fixed(2)")


@pytest.mark.parametrize(("length", "told"), [(8, True), (64, False)])
def test_cut_texts_are_counted(run: Run, models: dict[str, Path], rows: Path, length: int, told: bool) -> None:
    answered = run("predict", models["single"], rows, "--out", rows.with_name("a.csv"), "--max-length", length)
    said = re.search(r"(\d+) of 300 texts have 8 tokens or more: the rest is cut off \(--max-length\)\n", answered.err)
    assert (said is not None) == told, answered.err
