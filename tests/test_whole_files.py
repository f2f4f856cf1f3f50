"""What a command leaves is whole: a full disk, a place that takes no files and Ctrl-C leave what was there before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from offramp.bench.drawing import draw
from offramp.errors import OfframpError
from offramp.evaluation.legacy_arrays import write_legacy_arrays
from offramp.evaluation.plots import write_plots
from offramp.evaluation.report import write_report
from offramp.evaluation.writing import write_results
from offramp.tasks.submission import write_submission
from offramp.training.plan import write_json
from offramp.whole_file import whole_file
from offramp.whole_folder import whole_folder
from tests.bench.made_results import made_results, made_workload
from tests.evaluation.made_traces import random_trace
from tests.evaluation.sample_results import sample_results

resource = pytest.importorskip("resource", reason="limits on the size of files are of Unix")

RESULTS = sample_results(points=4, depth=3, rows=40)
FEW = 100
"""Bytes that fit on the disk: fewer than any of these files has."""


def folder_of_files(folder: Path) -> None:
    with whole_folder(folder / "inside") as new:
        (new / "weights").write_bytes(bytes(10 * FEW))


WRITERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "results": ("results.json", lambda folder: write_results(RESULTS, folder, report=False)),
    "plots": ("score_cost.png", lambda folder: write_plots(RESULTS, folder)),
    "report": ("report.html", lambda folder: write_report([RESULTS], folder / "report.html")),
    "trace": ("trace.npz", lambda folder: random_trace().save(folder / "trace.npz")),
    "times": ("bench.json", lambda folder: made_results(made_workload()).write(folder / "bench.json")),
    "drawing": ("bench.png", lambda folder: draw(made_results(made_workload()), folder / "bench.png")),
    "legacy arrays": ("each_layer.npy", lambda folder: write_legacy_arrays(random_trace(), folder, lambda policy: 1.0)),
    "plan": ("plan.json", lambda folder: write_json(folder / "plan.json", {"many": list(range(FEW))})),
    "upload": (
        "SST-2.tsv",
        lambda folder: write_submission(folder, "glue/sst-2", "test", [("1", 3)] * FEW),
    ),
    "folder": ("inside", folder_of_files),
}


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """As on a disk with so many bytes left, for each file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(name: str, tmp_path: Path) -> None:
    file, write = WRITERS[name]
    folder = tmp_path / "ein Ordner, größer"
    folder.mkdir()
    with pytest.raises(OfframpError, match=r"could not be written|cannot be written") as told, room_for(FEW):
        write(folder)
    assert file.split(".")[0] in str(told.value)
    assert content(folder) == {}
    write(folder)
    assert (folder / file).exists()
    before = content(folder)
    with pytest.raises(OfframpError), room_for(FEW):
        write(folder)
    assert content(folder) == before


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "folder"])
def test_ctrl_c(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, write = WRITERS[name]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path)
    assert content(tmp_path) == {}


@pytest.mark.skipif(sys.platform == "win32", reason="files in the place of folders are another error there")
@pytest.mark.parametrize("name", WRITERS)
def test_a_place_where_nothing_can_be_written(name: str, tmp_path: Path) -> None:
    """A file where a folder should be: as with a read-only folder, which root may write to all the same."""
    (tmp_path / "taken").write_text("")
    with pytest.raises(OfframpError, match="taken"):
        WRITERS[name][1](tmp_path / "taken" / "folder")
    assert content(tmp_path) == {"taken": b""}


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    """Who ends last has its say; neither takes the other's words, or its file, away."""
    path = tmp_path / "results.json"
    with whole_file(path) as one:
        one.write("of the first")
        with whole_file(path) as other:
            other.write("of the second")
        assert path.read_text() == "of the second"
    assert path.read_text() == "of the first"
    assert [found.name for found in tmp_path.iterdir()] == ["results.json"]
