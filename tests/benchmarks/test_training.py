"""Real cells, with a tiny backbone and generated rows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.study import store, training
from benchmarks.study.answers import unpacked
from benchmarks.study.command import make_run
from benchmarks.study.grid import BACKBONES, TASKS, Backbone, Cell, chosen_rates
from benchmarks.study.training import Workplace, run_cell
from offramp.errors import OfframpError
from offramp.tasks.encoding import TextEncoder
from tests.generated import backbone_folder, reviews

LAYERS, DEV_ROWS = 3, 40
METHODS = ("romebert-sd", "ebert")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    home = tmp_path_factory.mktemp("study")
    backbone_folder(home / "tiny", layers=LAYERS)
    (home / "glue" / "SST-2").mkdir(parents=True)
    for seed, (split, rows) in enumerate((("train", 60), ("dev", DEV_ROWS))):
        lines = [f"{text}\t{int(verdict == 'good')}" for text, verdict in reviews(rows, seed)]
        (home / "glue" / "SST-2" / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    tiny = Backbone("tiny", "tiny", LAYERS, (1, LAYERS), 1e-3, "mean", METHODS)
    task = dataclasses.replace(TASKS["sst-2"], epochs=1, batch_size=16, train_rows=48)
    return Workplace(home, home, {"tiny": tiny}, {"sst-2": task})


@pytest.mark.parametrize("method", ["plain-1", "plain-3", *METHODS])
def test_a_cell_from_end_to_end(method: str, place: Workplace, tmp_path: Path) -> None:
    cell = Cell("tiny", "sst-2", method, 1)
    found = run_cell(cell, place)
    store.write(tmp_path, cell, found)
    path = store.path_of(tmp_path, cell)
    assert path.stat().st_size < 30_000
    assert store.read(path) == json.loads(json.dumps({"format": store.FORMAT, **found}))
    assert found["settings"]["train"]["rows"] == 48
    assert (
        found["settings"]["recipe"]["schedule"]["learning_rate"] == chosen_rates(cell.backbone).get(method, 1.0) * 1e-3
    )
    assert sum(phase["steps"] for phase in found["settings"]["phases"]) == 3 * len(found["settings"]["phases"])
    layers = [exit["layer"] for exit in found["exits"]]
    if cell.layers:
        assert layers == [cell.layers]
        assert len(unpacked(found["answers"]["predictions"], "u1")) == DEV_ROWS
        assert ("labels" in found["answers"]) == (cell.layers == LAYERS)
        assert "curves" not in found
    elif method == "ebert":
        assert layers == [LAYERS]
        assert found["gates"]["ratio"] > 0
        assert set(found["curves"]) == {"common", "own", "entropy", "fixed"}
    else:
        assert layers == [1, 2, 3]
        assert all(len(point) == 4 for points in found["curves"]["common"].values() for point in points)


def test_the_same_cell_comes_out_the_same_and_rows_are_encoded_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_cell(Cell("tiny", "sst-2", "plain-1", 2), place)
    monkeypatch.setattr(TextEncoder, "__call__", lambda *_: pytest.fail("encoded again"))
    second = run_cell(Cell("tiny", "sst-2", "plain-1", 2), place)
    for found in (first, second):
        del found["seconds"]
        for phase in found["settings"]["phases"]:
            del phase["seconds"]
    assert first == second
    other = run_cell(Cell("tiny", "sst-2", "plain-1", 3), place)
    assert other["answers"] != first["answers"]


def test_a_backbone_that_is_not_there_or_of_another_depth_is_refused(place: Workplace) -> None:
    with pytest.raises(OfframpError, match=r"no backbone .*elsewhere"):
        place.backbone("elsewhere")
    assert place.backbone("offramp-mini") == "offramp-mini"
    deeper = dataclasses.replace(place.known_backbones["tiny"], depth=5)
    wrong = dataclasses.replace(place, known_backbones={"tiny": deeper})
    with pytest.raises(OfframpError, match="3 layers, the study says 5"):
        run_cell(Cell("tiny", "sst-2", "romebert-sd", 1), wrong)


@pytest.mark.parametrize("pooling", [None, "max"])
def test_another_pooling_can_be_tried(pooling: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pooling_of(cell: Cell, place: Workplace) -> dict[str, Any]:
        return {"pooling": place.known_backbones[cell.backbone].pooling}

    monkeypatch.setattr(training, "run_cell", pooling_of)
    run = make_run(tmp_path, tmp_path, pooling)
    assert run(Cell("minilm", "rte", "deebert", 1)) == {"pooling": pooling or BACKBONES["minilm"].pooling}
