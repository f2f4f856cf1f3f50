"""Tasks and files from the hub, with small sets in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offramp.errors import OfframpError
from offramp.tasks import task
from offramp.tasks.benchmarks import BENCHMARKS, Benchmark
from offramp.tasks.download import download
from offramp.tasks.hub import load_splits
from tests.tasks import hub_stand_in

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", hub_stand_in.load_dataset)


@pytest.mark.parametrize("bench", BENCHMARKS, ids=lambda bench: bench.name)
def test_written_files_are_read_back_as_the_hub_has_them(bench: Benchmark, tmp_path: Path) -> None:
    said: list[str] = []
    paths = download(bench.suite, tmp_path, [bench.folder], say=said.append)
    assert {path.relative_to(tmp_path).as_posix() for path in paths} == {
        f"{bench.folder}/{file.name}" for file in bench.files.values()
    }
    assert all(any(line.startswith(f"{path}: ") for line in said) for path in paths)
    from_files, from_hub = task(bench.name, data_dir=tmp_path), task(bench.name)
    assert from_files == from_hub == task(**from_hub.record)
    assert from_files.splits == from_hub.splits
    for split in from_hub.splits:
        written, there = from_files.split(split), from_hub.split(split)
        assert written.texts == [text.translate({9: " ", 10: " ", 13: " "}) for text in there.texts]
        assert written.pairs == there.pairs
        assert written.labels == pytest.approx(there.labels) if there.labels else written.labels is None
        assert (there.labels is None) == split.startswith("test")


def test_labels_are_ours_not_the_hub_s_numbers() -> None:
    mnli = task("mnli").split("train")
    assert [task("mnli").labels[i] for i in mnli.labels] == ["entailment", "neutral", "contradiction"]
    assert task("scitail").split("train").labels == [0, 1, 0]


def test_a_dev_split_for_imdb() -> None:
    imdb = task("imdb")
    train, dev = imdb.split("train"), imdb.split("dev")
    assert (len(train), len(dev), sum(dev.labels)) == (5000, 5000, 2500)
    assert not set(train.texts) & set(dev.texts)


def test_rows_without_a_label_are_counted(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert task("snli").split("train").labels == [0, 2]
    assert caplog.messages == ["hub:stanfordnlp/snli train: 1 rows without a label left out"]
    download("elue", tmp_path, ["snli"], say=lambda line: None)
    assert len((tmp_path / "SNLI" / "train.tsv").read_text().splitlines()) == 3


def test_official_layout(tmp_path: Path) -> None:
    download("glue", tmp_path, ["cola", "qqp", "stsb"], say=lambda line: None)
    cola = (tmp_path / "CoLA" / "train.tsv").read_bytes()
    assert cola == b'\t0\t\tsentence "0 with a tab  and a line\n\t1\t\tsentence "1\n\t0\t\tsentence "2\n'
    qqp = (tmp_path / "QQP" / "dev.tsv").read_text().splitlines()
    assert qqp[0] == "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    assert qqp[2] == '1\t\t\tquestion1 "1\tquestion2 "1\t1'
    assert (tmp_path / "STS-B" / "train.tsv").read_text().splitlines()[1].endswith("\t0.800")


def test_files_that_are_there_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [_, dev, _] = download("glue", tmp_path, ["rte"], say=lambda line: None)
    fresh = dev.read_bytes()
    dev.write_text("mine")
    said: list[str] = []
    assert download("glue", tmp_path, ["rte"], say=said.append) == []
    assert f"{dev} is there and kept (--overwrite fetches it again)" in said
    assert dev.read_text() == "mine"
    download("glue", tmp_path, ["rte"], say=said.append, overwrite=True)
    assert dev.read_bytes() == fresh


def test_an_interrupted_download_leaves_whole_files(tmp_path: Path) -> None:
    def interrupted(rows: Any, what: str) -> Any:
        yield next(rows)
        if what.endswith("dev.tsv"):
            raise KeyboardInterrupt
        yield from rows

    with pytest.raises(KeyboardInterrupt):
        download("glue", tmp_path, ["rte"], say=lambda line: None, watch=interrupted)
    assert [path.name for path in (tmp_path / "RTE").iterdir()] == ["train.tsv"]
    assert len(download("glue", tmp_path, ["rte"], say=lambda line: None)) == 2


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad(version: str, tmp_path: Path) -> None:
    paths = download("squad", tmp_path, [f"v{version}"], say=lambda line: None)
    assert [path.name for path in paths] == [f"train-v{version}.json", f"dev-v{version}.json"]
    written = json.loads(paths[1].read_text())
    assert written["version"] == version
    assert [len(article["paragraphs"]) for article in written["data"]] == [2, 1]
    paragraph = written["data"][0]["paragraphs"][1]
    assert paragraph["context"] == "context 1"
    first, second = paragraph["qas"]
    assert (first["id"], first["question"]) == ("2", "question 2?")
    assert first["answers"] == [{"text": "context", "answer_start": 0}, {"text": "con", "answer_start": 0}]
    assert [question.get("is_impossible") for question in (first, second)] == (
        [None, None] if version == "1.1" else [False, True]
    )
    assert bool(second["answers"]) == (version == "1.1")


@pytest.mark.parametrize(
    ("suite", "tasks", "message"),
    [
        ("superglue", [], "suite 'superglue': expected one of glue, elue, squad"),
        ("elue", ["rte"], "elue has no task 'rte': expected of sst-2, imdb"),
        ("squad", ["3"], "squad has no version '3': expected of 1.1, 2.0"),
    ],
)
def test_unknown_suites_and_tasks(suite: str, tasks: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match=message):
        download(suite, tmp_path, tasks)


def test_own_data_from_the_hub() -> None:
    made = task(data="nyu-mll/glue:rte")
    assert (made.labels, made.splits) == (("entailment", "not_entailment"), ("train", "dev", "test"))
    assert made.split("train").labels == [0, 1, 0]
    assert made.split("test").labels is None
    assert task(**made.record) == made


def test_no_hub() -> None:
    with pytest.raises(OfframpError) as raised:
        task(data="someone/something")
    assert str(raised.value) == (
        "someone/something is no file or folder here, and hub data set someone/something could not be loaded "
        "(ConnectionError: no hub here and so no someone/something): check the name and the network, or give local "
        "files with --data-dir or --data"
    )


def test_a_local_folder_of_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `datasets` itself."""
    monkeypatch.undo()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    for split, rows in hub_stand_in.load_dataset("nyu-mll/glue", "rte").items():
        (tmp_path / "rte" / "data").mkdir(parents=True, exist_ok=True)
        rows.to_parquet(tmp_path / "rte" / "data" / f"{split}-00000-of-00001.parquet")
    assert set(load_splits(str(tmp_path / "rte"))) == {"train", "validation", "test"}
    made = task(data=tmp_path / "rte")
    assert made.labels == ("entailment", "not_entailment")
    assert made.split("dev").labels == [0, 1, 0]
    single = task(data=tmp_path / "rte" / "data" / "train-00000-of-00001.parquet", dev_share=0)
    assert (single.labels, single.split("train").labels) == (made.labels, [0, 1, 0])
