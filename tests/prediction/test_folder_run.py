"""A folder of files to a folder of answers, in this process: as single files are answered, and again from anywhere."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.errors import OfframpError
from offramp.interop import load
from offramp.prediction import parts
from offramp.prediction.files import FORMATS, open_writer
from offramp.prediction.folder_run import answer_here, find_files, settings_of, sources_of
from offramp.prediction.part_folder import LOCK, MANIFEST, RECEIPTS, PartFolder, locked
from offramp.prediction.parts import Answerer, Job, Part, Receipt, Unreadable, read_parts
from offramp.tasks.tables import read_table
from tests.command_line import Result
from tests.generated import reviews
from tests.prediction.models import model_folder

Run = Callable[..., Result]
TRAINED = {"name": "reviews", "text": "review", "text_pair": None}
POLICY = "entropy(0.4)"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "single", trained=TRAINED, layers=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of every format, in folders, packed, without rows; and what is no table."""
    return tables(tmp_path / "in")


def tables(folder: Path, rows: int = 25) -> Path:
    for seed, name in enumerate(("a.csv", "b/a.tsv", "b/c.jsonl", "d.parquet", "e.csv", "none.csv")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        writer = open_writer(folder / name, ("id", "review", "error"))
        texts = [] if name == "none.csv" else [text for text, _ in reviews(rows + seed, seed)]
        writer.write([{"id": f"{name}-{i}", "review": text, "error": "?"} for i, text in enumerate(texts)])
        writer.close()
    with (folder / "e.csv").open("rb") as plain, gzip.open(folder / "e.csv.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    (folder / "e.csv").unlink()
    (folder / "README.txt").write_text("no table")
    for name in ("_SUCCESS.csv", ".hidden.csv"):
        (folder / name).write_text("of another program")
    return folder


def answered(out: Path, source: str) -> list[dict[str, Any]]:
    """The rows of all parts of a file, in the order of their names."""
    return [record.values for part in sorted((out / source).iterdir()) for record in _rows(part)]


def _rows(part: Path) -> Iterator[Any]:
    return iter(()) if not part.stat().st_size else iter(read_table(part))


def typed(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["id"], row["label"], float(row["score"]), int(row["exit_layer"])) for row in rows]


def near(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Other batches may round the last digit otherwise."""
    return [(i, label, pytest.approx(score, abs=1e-5), layer) for i, label, score, layer in rows]


@pytest.mark.parametrize("format", FORMATS)
def test_as_single_files_are_answered(run: Run, model: Path, folder: Path, format: str, tmp_path: Path) -> None:
    out = tmp_path / "answers"
    options = ("--policy", POLICY, "--keep", "id,error")
    done = run("predict", model, folder, "--out", out, "--rows-per-part", "10", "--format", format, *options)
    assert done.status == 0, done.err
    assert f"{out}: 135 answers of 6 files in 16 parts under {POLICY}\n" in done.err
    assert "left out: 1 files that are no tables, the first is" in done.err
    for source in ("a.csv", "b/a.tsv", "b/c.jsonl", "d.parquet", "e.csv.gz"):
        single = tmp_path / "single.jsonl"
        assert run("predict", model, folder / source, "--out", single, *options, "--overwrite").status == 0
        found = answered(out, source)
        assert typed(found) == near(typed([record.values for record in read_table(single)]))
        assert [len(list(_rows(part))) for part in sorted((out / source).iterdir())][:2] == [10, 10]
        assert {(row["input_error"], row["error"] or None) for row in found} == {("?", None)}
    assert answered(out, "none.csv") == []
    assert json.loads((out / MANIFEST).read_text())["finished"] == {
        "files": 6,
        "parts": 16,
        "rows": 135,
        "without_answer": 0,
    }


def test_rows_without_an_answer_say_why(run: Run, model: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "in" / "rows.jsonl", tmp_path / "out"
    data.parent.mkdir()
    texts: list[Any] = ["a good film", " ", "the plot", None, ["a"], "it was bad"]
    data.write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    refused = run("predict", model, data.parent, "--out", out, "--rows-per-part", "4")
    assert refused.status == 2
    first = f"{data}:2: 'review' is empty: expected a text"
    assert refused.err.endswith(f"error: 3 of 6 rows have no answer; the first is {first}\n")
    rows = answered(out, "rows.jsonl")
    assert [row["error"] for row in rows] == [
        None,
        first,
        None,
        f"{data}:4: 'review' is empty: expected a text",
        f"{data}:5: 'review' is a list: expected a text",
        None,
    ]
    assert [row["label"] is None for row in rows] == [row["error"] is not None for row in rows]
    again = run("predict", model, data.parent, "--out", out, "--rows-per-part", "4")
    assert again.err == refused.err, "it forgot what had no answer"


def test_a_file_that_is_damaged_does_not_stop_the_others(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    """Whole parts before the damage are kept; once it is mended, that file alone is done again."""
    out, command = tmp_path / "out", ("predict", model, folder, "--rows-per-part", "10", "--out", tmp_path / "out")
    good = (folder / "a.csv").read_text()
    lines = good.splitlines()
    (folder / "a.csv").write_text("\n".join([*lines[:15], "cut short", *lines[15:]]) + "\n")
    refused = run(*command)
    assert refused.status == 2
    assert f"1 of 6 files are not answered to their end; the first: {folder / 'a.csv'}:16: row cut short" in refused.err
    assert [part.name for part in (out / "a.csv").iterdir()] == ["part-000000.jsonl"]
    assert len(answered(out, "d.parquet")) == 28
    assert json.loads((out / MANIFEST).read_text())["finished"] is None
    before = {path: path.stat().st_mtime_ns for path in out.rglob("part-*")}
    (folder / "a.csv").write_text(good)
    done = run(*command)
    assert done.status == 0, done.err
    assert len(answered(out, "a.csv")) == 25
    changed = {path for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {out / "a.csv" / "part-000000.jsonl"}


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A run over a folder that was never stopped, and what another needs."""
    home = tmp_path_factory.mktemp("made")
    opened = load(model)
    files, _ = find_files(tables(home / "in", 8), home / "whole")
    kept = {"home": home, "opened": opened, "sources": sources_of(files, opened, None, None, ("id",))[0]}
    go_on(kept, home / "whole")
    return {**kept, "whole": contents(home / "whole")}


def go_on(made: dict[str, Any], out: Path, stop_after: int | None = None) -> list[Receipt]:
    """Answer what is missing; or be killed after so many parts, with one more written that has no receipt."""
    job = Job("", None, ("id",), str(out), rows_per_part=3, options={"batch_size": 1, "backend": "torch"})
    found: list[Receipt] = []
    with PartFolder(job, settings_of(job, made["opened"], None, None), made["sources"]) as folder:
        for receipt in answer_here(job, folder.missing(), made["opened"]):
            assert isinstance(receipt, Receipt)
            if len(found) == stop_after:
                return found
            folder.record(receipt)
            found.append(receipt)
        folder.finish()
    return found


def contents(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*part-*")}


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_stopped_anywhere_it_goes_on_to_the_same_answers(made: dict[str, Any], data: st.DataObject) -> None:
    """Killed between a part and its receipt, or in the middle of either; parts lost, and scraps left behind."""
    out = made["home"] / "stopped"
    shutil.rmtree(out, ignore_errors=True)
    names = sorted(made["whole"])
    for stop in data.draw(st.lists(st.integers(0, len(names)), max_size=3)):
        go_on(made, out, stop)
        receipts = out / RECEIPTS
        if receipts.is_file() and data.draw(st.booleans(), "cut the receipts"):
            receipts.write_text(receipts.read_text()[: data.draw(st.integers(0, receipts.stat().st_size))])
        for name in data.draw(st.lists(st.sampled_from(names), max_size=2), "lost"):
            (out / name).unlink(missing_ok=True)
        if data.draw(st.booleans(), "scraps") and (out / "a.csv").is_dir():
            (out / "a.csv" / ".part-000001-0.jsonl").write_text("half of")
    kept = with_receipt(out)
    assert len(go_on(made, out)) == len(names) - len(kept)
    assert contents(out) == made["whole"]
    assert go_on(made, out) == [], "there was nothing left to do"


def with_receipt(out: Path) -> set[str]:
    lines = (out / RECEIPTS).read_text().splitlines(keepends=True) if (out / RECEIPTS).is_file() else []
    found = [json.loads(line) for line in lines if line.endswith("\n")]
    return {
        name for name in (f"{one['source']}/part-{one['number']:06d}.jsonl" for one in found) if (out / name).exists()
    }


DIFFERENT = [
    (("--policy", "fixed(2)"), "was begun with policy entropy(0.4), and this is fixed(2)"),
    (("--rows-per-part", "11"), "was begun with rows per part 10, and this is 11"),
    (("--format", "csv"), "was begun with format jsonl, and this is csv"),
    (("--keep", "id"), "was begun with keep [], and this is ['id']"),
    (("--text", "id"), "was begun with text None, and this is id"),
    (("--max-length", "12"), "was begun with max length None, and this is 12"),
    (("--precision", "int8"), "was begun with precision auto, and this is int8"),
]


def test_other_settings_are_refused(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["predict", model, folder, "--out", out, "--rows-per-part", "10", "--policy", POLICY]
    assert run(*command).status == 0
    before = contents(out)
    for options, message in DIFFERENT:
        refused = run(*(command[:-2] if options[0] == "--policy" else command), *options)
        assert (refused.status, contents(out)) == (2, before)
        assert f"{out} {message}: name another folder, or say --overwrite\n" in refused.err
    other = model_folder(tmp_path / "other", trained=TRAINED, layers=4)
    assert f"{out} was begun with weights" in run(*command[:1], other, *command[2:]).err
    assert run(*command, "--batch-size", "3", "--threads", "1").status == 0, "these do not change answers"
    replaced = run(*command, "--format", "csv", "--overwrite")
    assert replaced.status == 0, replaced.err
    assert {Path(name).suffix for name in contents(out)} == {".csv"}


def test_files_that_come_and_change(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    """A new one is answered; one that changed since it was answered is refused."""
    out = tmp_path / "out"
    command = ("predict", model, folder, "--out", out)
    assert run(*command).status == 0
    shutil.copy(folder / "a.csv", folder / "new.csv")
    done = run(*command)
    assert "holds the answers to 135 rows already: going on" in done.err
    assert [row["label"] for row in answered(out, "new.csv")] == [row["label"] for row in answered(out, "a.csv")]
    with (folder / "a.csv").open("a", newline="") as file:
        csv.writer(file).writerow(["more", "a good film", "?"])
    refused = run(*command)
    assert f"{folder / 'a.csv'} has changed since it was answered: name another folder, or say" in refused.err
    assert run(*command, "--overwrite").status == 0
    assert len(answered(out, "a.csv")) == 26


def test_two_runs_do_not_write_to_one_folder(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    command = ("predict", model, folder, "--out", tmp_path / "out")
    assert run(*command).status == 0
    before = contents(tmp_path / "out")
    with locked(tmp_path / "out" / LOCK):
        refused = run(*command, "--overwrite")
        assert (refused.status, refused.err) == (
            2,
            f"error: another run writes to {tmp_path / 'out'}: wait for it, or name another folder\n",
        )
        assert contents(tmp_path / "out") == before
    assert run(*command, "--overwrite").status == 0


@pytest.mark.parametrize("name", ["empty.csv", "empty.jsonl", "damaged.parquet", "cut.csv.gz"])
def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    name: str, run: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (folder / name).write_bytes(b"" if name.startswith("empty") else b"\x1f\x8b\x08 no such thing")
    out = tmp_path / "out"
    refused = run("predict", model, folder, "--out", out)
    assert refused.status == 2
    assert re.search(r"error: 1 of \d+ files are not answered to their end; the first: ", refused.err)
    assert name in refused.err
    assert len(answered(out, "a.csv")) == 25
    assert json.loads((out / MANIFEST).read_text())["finished"] is None
    (folder / name).unlink()
    assert run("predict", model, folder, "--out", out).status == 0
    assert json.loads((out / MANIFEST).read_text())["finished"]["files"] > 0


def test_a_file_that_is_called_as_ours_are(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "a.csv", folder / "b.csv")
    (folder / RECEIPTS).write_text('{"review": "good"}\n')
    refused = run("predict", model, folder, "--out", tmp_path / "out")
    assert f"{folder / RECEIPTS} is called as a file that the answers come with: rename it" in refused.err
    assert not (tmp_path / "out").exists()


WRONG = [
    (("{folder}",), "answers in parts are several files: name a folder for them with --out"),
    (("{folder}", "--out", "{folder}/answers"), "lies in the input"),
    (
        ("{folder}", "--out", "a.csv"),
        "a folder of parts; name a folder, such as --out a --format csv",
    ),
    (("{folder}", "--out", "other"), "other is not empty and holds no manifest.json: name another folder"),
    (("{folder}", "--out", "file"), "file is a file: name a folder for the answers"),
    (
        ("{folder}", "--out", "out", "--format", "lines"),
        "--format lines: answers are written as jsonl, csv, tsv, parquet",
    ),
    (("{folder}", "--out", "out", "--text", "reviw"), "there is no column 'reviw'"),
    (("{folder}", "--out", "out", "--keep", "idd"), "there is no column 'idd'"),
    (("{folder}", "--out", "out", "--pair", "x"), "--pair has no meaning for a folder of answers"),
    (("{folder}", "--out", "out", "--workers", "2"), "--workers is for --engine ray"),
    (("{folder}", "--out", "out", "--engine", "spark"), "--engine spark: expected local or ray"),
    (("{folder}", "--out", "out", "--policy", "fixed(1)", "--policy", "fixed(2)"), "one policy"),
    (("other", "--out", "out"), "other holds no CSV, TSV, JSONL or Parquet files"),
    (("nowhere", "--out", "out", "--engine", "ray"), "nowhere does not exist: name a file, or a folder"),
    (("{folder}/a.csv", "--workers", "2"), "--workers is for a folder of answers"),
    (("{folder}/a.csv", "--rows-per-part", "2"), "--rows-per-part is for a folder of answers"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_arguments(
    run: Run, model: Path, folder: Path, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("other").mkdir()
    Path("other/notes.txt").write_text("notes")
    Path("file").write_text("")
    before = sorted(folder.parent.rglob("*"))
    refused = run("predict", model, *(argument.format(folder=folder) for argument in arguments))
    assert refused.status == 2
    assert message in refused.err
    assert refused.err.count("\n") == 1
    assert sorted(folder.parent.rglob("*")) == before


def test_without_ray_it_is_told_what_brings_it(
    run: Run, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    refused = run("predict", model, folder, "--out", tmp_path / "out", "--engine", "ray")
    assert (refused.status, refused.err) == (2, "error: this needs ray: pip install 'offramp[ray]'\n")


def test_a_damaged_manifest(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run("predict", model, folder, "--out", out).status == 0
    (out / RECEIPTS).write_text("{}\n")
    assert f"{out / RECEIPTS} is damaged" in run("predict", model, folder, "--out", out).err
    (out / MANIFEST).write_text("{")
    assert f"{out / MANIFEST} is damaged" in run("predict", model, folder, "--out", out).err


def test_ctrl_c_and_the_same_command_again(
    run: Run, model: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("predict", model, folder, "--out", tmp_path / "out", "--rows-per-part", "10")
    answer = Answerer.__call__

    def stopping(self: Answerer, part: Part) -> Receipt:
        if (part.source, part.number) == ("b/a.tsv", 1):
            raise KeyboardInterrupt
        return answer(self, part)

    with monkeypatch.context() as patch:
        patch.setattr(Answerer, "__call__", stopping)
        stopped = run(*command)
    assert stopped.status == 130
    assert f"stopped with 35 rows answered in {tmp_path / 'out'}: the same command goes on from there" in stopped.err
    done = run(*command)
    assert done.status == 0, done.err
    assert "holds the answers to 35 rows already: going on" in done.err
    assert len(answered(tmp_path / "out", "b/a.tsv")) == 26


def test_a_part_that_kills_its_workers_is_given_up(model: Path, folder: Path, tmp_path: Path) -> None:
    """What they leave behind is counted."""
    job = Job(str(model), None, (), str(tmp_path / "out"))
    files, _ = find_files(folder / "a.csv", tmp_path / "out")
    [source], _ = sources_of(files, load(model), None, None, ())
    [part] = read_parts(job, source)
    assert isinstance(part, Part)
    answer = Answerer(job)
    (tmp_path / "out" / "a.csv").mkdir(parents=True)
    for i in range(parts.MOST_LOST - 1):
        (tmp_path / "out" / "a.csv" / f".part-000000-{i}.jsonl").touch()
    assert answer(part).rows == 25
    (tmp_path / "out" / "a.csv" / ".part-000000-more.jsonl").touch()
    with pytest.raises(OfframpError, match=r"a\.csv: 5 workers were lost over part 0: is there enough memory\?"):
        answer(part)


def test_a_file_that_is_gone_is_told(model: Path, folder: Path, tmp_path: Path) -> None:
    """As on a machine that does not see it."""
    files, _ = find_files(folder / "a.csv", tmp_path / "out")
    [source], _ = sources_of(files, load(model), None, None, ())
    (folder / "a.csv").unlink()
    [found] = read_parts(Job(str(model), None, (), str(tmp_path / "out")), source)
    assert isinstance(found, Unreadable)
    assert "a.csv does not exist" in found.why
