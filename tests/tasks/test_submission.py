"""Upload files, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp.errors import OfframpError
from offramp.tasks.submission import write_submission

NAMES = [
    ("cola", "test", "CoLA.tsv", "cola.tsv"),
    ("sst-2", "test", "SST-2.tsv", "sst-2.tsv"),
    ("mrpc", "test", "MRPC.tsv", "mrpc.tsv"),
    ("sts-b", "test", "STS-B.tsv", "sts-b.tsv"),
    ("qqp", "test", "QQP.tsv", "qqp.tsv"),
    ("mnli", "test_matched", "MNLI-m.tsv", "mnli.tsv"),
    ("mnli", "test_mismatched", "MNLI-mm.tsv", "mnli-mm.tsv"),
    ("qnli", "test", "QNLI.tsv", "qnli.tsv"),
    ("rte", "test", "RTE.tsv", "rte.tsv"),
    ("wnli", "test", "WNLI.tsv", "wnli.tsv"),
    ("ax", "test", "AX.tsv", "ax.tsv"),
]


@pytest.mark.parametrize(("task", "split", "name", "original"), NAMES)
def test_names(task: str, split: str, name: str, original: str, tmp_path: Path) -> None:
    assert write_submission(tmp_path, task, split, []) == [tmp_path / name]
    assert write_submission(tmp_path, task, split, [], original_names=True) == [tmp_path / original]


@pytest.mark.parametrize(
    ("task", "split", "answers", "content"),
    [
        ("sst-2", "test", [("1", 3), ("0", 12)], b"index\tprediction\n0\t1\n1\t0\n"),
        ("mnli", "test_matched", [("entailment", 1)], b"index\tprediction\n0\tentailment\n"),
        ("sts-b", "test", [(2.34567, 1), (5.2, 1), (-0.1, 1)], b"index\tprediction\n0\t2.346\n1\t5.000\n2\t0.000\n"),
    ],
)
def test_content(task: str, split: str, answers: list[tuple[str | float, int]], content: bytes, tmp_path: Path) -> None:
    [path] = write_submission(tmp_path / "new" / "folder", task, split, iter(answers))
    assert path.read_bytes() == content


@pytest.mark.parametrize(("point", "written"), [("0.1", "0.1"), ("entropy(0.1) | window(8)", "entropy-0.1-window-8")])
def test_elue(point: str, written: str, tmp_path: Path) -> None:
    paths = write_submission(tmp_path, "elue/sst-2", "test", [("1", 3), ("0", 12)], operating_point=point)
    assert [path.name for path in paths] == [f"sst-2_{written}.tsv", f"sst-2_infer_exit_layer_{written}.tsv"]
    assert paths[0].read_bytes() == b"index\tprediction\n0\t1\n1\t0\n"
    assert paths[1].read_bytes() == b"index\texit_layer\n0\t3\n1\t12\n"


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(
        OfframpError, match="glue/mnli dev_matched: upload files are of test_matched or test_mismatched"
    ):
        write_submission(tmp_path, "mnli", "dev_matched", [])
    with pytest.raises(OfframpError, match="row 1: prediction 'yes': expected one of entailment, not_entailment"):
        write_submission(tmp_path, "rte", "test", [("entailment", 1), ("yes", 1)])
    with pytest.raises(OfframpError, match="an ELUE file is of one operating point"):
        write_submission(tmp_path, "snli", "test", [])
    (tmp_path / "file").touch()
    with pytest.raises(OfframpError, match=r"RTE\.tsv cannot be written"):
        write_submission(tmp_path / "file", "rte", "test", [])


def test_an_interrupted_run_leaves_no_file(tmp_path: Path) -> None:
    def answers() -> Iterator[tuple[str, int]]:
        yield "1", 1
        raise KeyboardInterrupt

    (tmp_path / "snli_1.tsv").write_text("the old one")
    with pytest.raises(KeyboardInterrupt):
        write_submission(tmp_path, "snli", "test", answers(), operating_point="1")
    assert [path.name for path in tmp_path.iterdir()] == ["snli_1.tsv"]
    assert (tmp_path / "snli_1.tsv").read_text() == "the old one"
