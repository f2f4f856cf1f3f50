"""The page is made from the cells, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.study import page, store
from benchmarks.study.figures import write_figures
from benchmarks.study.grid import Cell, grid
from benchmarks.study.page import page_text
from benchmarks.study.summary import Summary
from benchmarks.study.times import parts, path_of, speed_up
from tests.benchmarks.made_cells import SMALL, SOME_TASKS, made_cells

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def cells() -> dict[Cell, dict]:
    return made_cells()


def stored(cells: dict[Cell, dict], folder: Path) -> Summary:
    """Through files, as the page has them."""
    for cell, found in cells.items():
        store.write(folder, cell, {key: value for key, value in found.items() if key != "format"})
    return Summary(SMALL, store.read_all(folder, grid([SMALL], SOME_TASKS)), SOME_TASKS)


def test_it_comes_out_the_same_every_time(cells: dict[Cell, dict], tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        summary = stored(cells, tmp_path / name)
        figures = write_figures(summary, tmp_path / name / "img")
        assert len(figures) == 2
        made.append([page_text([summary], tmp_path / name), *(path.read_bytes() for path in figures)])
    assert made[0] == made[1]
    assert not any(b"matplotlib" in image for image in made[0][1:])  # nor would they change with its version's name
    assert f"All {len(cells)} cells are there" in made[0][0]


def test_it_shows_the_numbers_of_the_cells(cells: dict[Cell, dict], tmp_path: Path) -> None:
    summary = Summary(SMALL, cells, SOME_TASKS)
    text = page_text([summary], tmp_path)
    area = summary.over_seeds(summary.area("layers"), "sst-2", "elasticbert")
    assert area is not None
    assert f"{100 * area.mean:.1f} ± {100 * area.half_width:.1f}" in text  # type: ignore[operator]
    for found in cells.values():
        found["exits"][-1]["score"] += 0.01
    try:
        assert page_text([Summary(SMALL, cells, SOME_TASKS)], tmp_path) != text
    finally:
        for found in cells.values():
            found["exits"][-1]["score"] -= 0.01


@pytest.mark.parametrize("kept", [lambda cell: False, lambda cell: cell.seed == 1, lambda cell: cell.task == "sst-2"])
def test_it_can_be_read_with_cells_missing(kept, cells: dict[Cell, dict], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    some = {cell: found for cell, found in cells.items() if kept(cell)}
    summary = Summary(SMALL, some, SOME_TASKS)
    text = page_text([summary], tmp_path)
    assert f"**{len(cells) - len(some)} of {len(cells)} cells are missing**" in text
    assert "nan" not in text
    assert "None" not in text
    assert bool(write_figures(summary, tmp_path)) == bool(some)


def test_few_missing_cells_are_named(cells: dict[Cell, dict], tmp_path: Path) -> None:
    lost = Cell("small", "sst-2", "offramp", 2)
    summary = Summary(SMALL, {cell: found for cell, found in cells.items() if cell != lost}, SOME_TASKS)
    assert "cells are missing**: `small_sst-2_offramp_seed2`." in page_text([summary], tmp_path)


def test_the_command_writes_a_page_of_no_cells(tmp_path: Path) -> None:
    page.main(["--cells", str(tmp_path / "none"), "--page", str(tmp_path / "results.md")])
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "**574 of 574 cells are missing**" in text
    assert text.count("Nothing has been run yet.") == 3


def test_measured_times_become_speed_ups(cells: dict[Cell, dict], tmp_path: Path) -> None:
    times = parts({"first": 2.0, "last": 5.0, "asked": 8.0}, depth=4, rows=1000)
    assert times == {"fixed": 0.0, "layer": 1.0, "exit": 1.0}
    assert speed_up(times, depth=4, layers=2) == pytest.approx(5 / 4)
    found = {"CPU, fp32, batch 1": times, "machine": {"processor": "a processor", "threads": 2}}
    assert "Layers as time" not in page_text([Summary(SMALL, cells, SOME_TASKS)], tmp_path)
    store.write_whole(path_of(tmp_path, "small"), found)
    text = page_text([Summary(SMALL, cells, SOME_TASKS)], tmp_path)
    assert "a processor, 2 threads" in text
    assert "| CPU, fp32, batch 1 | 0 | 1000 | 1000 | 0.94 × | 1.25 × | 1.88 × | 2.50 × |" in text
