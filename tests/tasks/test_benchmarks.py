"""GLUE and ELUE from their official folders."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from offramp.errors import OfframpError
from offramp.tasks import task
from offramp.tasks.benchmarks import BENCHMARKS, Benchmark, find_benchmark
from offramp.tasks.metrics import METRICS


def write_official(bench: Benchmark, folder: Path) -> None:
    """Two rows a split: texts `<split> a0` and `<split> b0`, the labels from the last to the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, file in bench.files.items():
        lines = ["\t".join(file.columns)] if file.header else []
        for row in range(2):
            cells = {file.text: f'{split} "a{row}', file.pair: f"{split} b{row}"}
            cells[file.label] = bench.labels[-1 - row] if bench.labels else f"{row + 2}.500"
            lines.append("\t".join(cells.get(column, "x") for column in file.columns))
        (folder / file.name).write_text("\ufeff" + "\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("bench", BENCHMARKS, ids=lambda bench: bench.name)
def test_every_benchmark(bench: Benchmark, tmp_path: Path) -> None:
    write_official(bench, tmp_path / bench.folder)
    made = task(bench.name, data_dir=tmp_path)
    assert (made.name, made.labels, made.splits) == (bench.name, bench.labels, tuple(bench.files))
    assert all(metric in METRICS for metric in made.metrics)
    for split, file in bench.files.items():
        rows = made.split(split)
        assert rows.texts == [f'{split} "a0', f'{split} "a1']
        assert rows.pairs == ([f"{split} b0", f"{split} b1"] if made.pair else None)
        last = len(bench.labels) - 1
        assert rows.labels == (None if file.label is None else [last, last - 1] if bench.labels else [2.5, 3.5])
        assert rows.source == str(tmp_path / bench.folder / file.name)
    again = task(**json.loads(json.dumps(made.record)))
    assert again == made
    assert again.split("test" if "test" in made.splits else "train").texts


def test_label_order_and_metrics_of_the_papers() -> None:
    assert find_benchmark("mnli").labels == ("contradiction", "entailment", "neutral")
    assert find_benchmark("rte").labels == find_benchmark("qnli").labels == ("entailment", "not_entailment")
    assert {bench.folder: bench.metrics[0] for bench in BENCHMARKS if bench.suite == "glue"} == {
        **dict.fromkeys(("SST-2", "MNLI", "QNLI", "RTE", "WNLI", "AX"), "accuracy"),
        **dict.fromkeys(("MRPC", "QQP"), "f1"),
        "CoLA": "matthews",
        "STS-B": "spearman",
    }
    assert {bench.folder: bench.metrics[0] for bench in BENCHMARKS if bench.suite == "elue"} == {
        **dict.fromkeys(("SST-2", "IMDb", "SNLI", "SciTail"), "accuracy"),
        "MRPC": "accuracy_f1",
        "STS-B": "pearson_spearman",
    }


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("sst-2", "glue/sst-2"),
        ("SST2", "glue/sst-2"),
        ("GLUE/sst_2", "glue/sst-2"),
        ("elue/SST-2", "elue/sst-2"),
        ("stsb", "glue/sts-b"),
        ("IMDb", "elue/imdb"),
        ("SciTail", "elue/scitail"),
    ],
)
def test_names(name: str, found: str) -> None:
    assert find_benchmark(name).name == found


@pytest.mark.parametrize("name", ["sts", "glue/imdb", "elue/rte", "mnli-mm", "x", ""])
def test_unknown_names(name: str) -> None:
    with pytest.raises(OfframpError, match=r"is not known: .*elue/scitail"):
        find_benchmark(name)


@pytest.mark.parametrize("inside", ["", "SST-2", "sst2"])
def test_folders(inside: str, tmp_path: Path) -> None:
    write_official(find_benchmark("sst-2"), tmp_path / inside)
    assert task("sst-2", data_dir=tmp_path).splits == ("train", "dev", "test")


def test_some_of_the_files(tmp_path: Path) -> None:
    mnli = find_benchmark("mnli")
    write_official(mnli, tmp_path)
    for name in ("dev_mismatched", "test_matched", "test_mismatched"):
        (tmp_path / f"{name}.tsv").unlink()
    packed = lzma.compress((tmp_path / "train.tsv").read_bytes())
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "train.tsv.xz").write_bytes(packed)
    made = task("mnli", data_dir=tmp_path)
    assert (made.splits, made.dev_splits) == (("train", "dev_matched"), ("dev_matched",))
    assert len(made.split("train")) == 2
    with pytest.raises(OfframpError, match="glue/mnli has no split 'test' here: it has train, dev_matched"):
        made.split("test")


def test_the_diagnostic_set_lies_with_mnli(tmp_path: Path) -> None:
    write_official(find_benchmark("ax"), tmp_path / "MNLI")
    assert len(task("ax", data_dir=tmp_path).split("test")) == 2


def test_short_rows_of_qqp_but_of_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("qqp", "rte"):
        write_official(find_benchmark(name), tmp_path / name)
        with (tmp_path / name / "train.tsv").open("a") as file:
            file.write("\n9\tcut")
    assert len(task("qqp", data_dir=tmp_path).split("train")) == 2
    assert "1 rows cut short left out" in caplog.text
    with pytest.raises(OfframpError, match=r"train\.tsv:4: row cut short"):
        task("rte", data_dir=tmp_path).split("train")


BAD = {
    "unknown label": ("sentence\tlabel\na\t1\nb\t2\n", "train.tsv:3: label '2': expected one of 0, 1"),
    "no label": ("sentence\tlabel\na\t1\nb\t\n", "train.tsv:3: no 'label': expected a label in every row"),
    "other column": ("text\tlabel\na\t1\n", "train.tsv: there is no column 'sentence': it has 'text', 'label'"),
    "no rows": ("sentence\tlabel\n", "train.tsv holds no rows"),
    "empty": ("", "train.tsv is empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    (tmp_path / "train.tsv").write_text(content)
    with pytest.raises(OfframpError) as raised:
        task("sst-2", data_dir=tmp_path).split("train")
    assert str(raised.value).startswith(f"{tmp_path}/{message}")


@pytest.mark.parametrize("score", ["five", "nan", "inf"])
def test_bad_numbers(score: str, tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t{score}\n")
    with pytest.raises(OfframpError, match=rf"train\.tsv:2: label '{score}': expected a number"):
        task("elue/sts-b", data_dir=tmp_path).split("train")


def test_no_such_files(tmp_path: Path) -> None:
    with pytest.raises(
        OfframpError, match=r"holds none of train\.tsv, dev\.tsv, test\.tsv .* no folder SST-2.*offramp"
    ):
        task("sst-2", data_dir=tmp_path)
    with pytest.raises(OfframpError, match="is not a folder: expected one with the files of glue/sst-2"):
        task("sst-2", data_dir=tmp_path / "no")


def test_arguments_that_do_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(OfframpError, match="no task: name one"):
        task()
    with pytest.raises(OfframpError, match="text is for own data"):
        task("sst-2", data_dir=tmp_path, text="review")
    with pytest.raises(OfframpError, match="data_dir is for GLUE"):
        task(data_dir=tmp_path, data="mine.csv")
