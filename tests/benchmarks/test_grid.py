"""What the study trains, and what of it is left to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.study import store
from benchmarks.study.command import probed
from benchmarks.study.grid import BACKBONES, METHODS, TASKS, Cell, grid, only, schedule_of, work_of
from offramp.errors import OfframpError
from offramp.policies import REGISTRY as POLICIES
from offramp.training.published import published_recipe, with_settings

STATIC_AND_METHODS = 4 + 9
CELL = Cell("minilm", "rte", "deebert", 2)


def test_every_method_on_every_task_from_every_backbone_with_every_seed() -> None:
    cells = grid()
    assert len(set(cells)) == len(cells)
    assert Counter(cell.backbone for cell in cells) == {
        "offramp-mini": STATIC_AND_METHODS * 7 * 3,
        "minilm": STATIC_AND_METHODS * 7 * 3,
        "offramp-mini-albert": 4 * 7,
    }
    depths = {(cell.backbone, cell.layers) for cell in cells if cell.layers}
    assert depths == {("offramp-mini", d) for d in (3, 6, 9, 12)} | {("minilm", d) for d in (2, 3, 4, 6)}
    assert len({cell.name for cell in cells}) == len(cells)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_a_recipe_with_rules_there_are(method: str) -> None:
    recipe = published_recipe(METHODS[method].recipe, "glue/sst-2", "bert")
    schedule = schedule_of(BACKBONES["minilm"], TASKS["rte"])
    made = with_settings(recipe, schedule, METHODS[method].settings)
    assert made.schedule.learning_rate == 5e-5
    assert made.schedule.epochs == 5
    assert set(METHODS[method].own_rules) <= set(POLICIES)


def test_only_leaves_what_was_asked_for() -> None:
    left = only(grid(), ["task=rte,mrpc", "method=plain-3", "seed=1"])
    assert sorted(cell.name for cell in left) == [
        "minilm_mrpc_plain-3_seed1",
        "minilm_rte_plain-3_seed1",
        "offramp-mini_mrpc_plain-3_seed1",
        "offramp-mini_rte_plain-3_seed1",
    ]
    assert only(grid(), ["method=plain-9"]) == only(grid(), ["method=plain-9", "backbone=offramp-mini"])


@pytest.mark.parametrize("wish", ["task=boolq", "rte", "colour=red", "seed=9"])
def test_only_refuses_what_there_is_not(wish: str) -> None:
    with pytest.raises(ValueError, match="--only"):
        only(grid(), [wish])


def test_cells_that_are_there_are_not_missing_and_failures_are(tmp_path: Path) -> None:
    cells = grid()
    other = Cell("minilm", "rte", "deebert", 3)
    store.write_failure(tmp_path, CELL, "no memory")
    store.write_failure(tmp_path, other, "no memory")
    store.write(tmp_path, CELL, {"exits": [1]})
    assert set(cells) - set(store.missing(tmp_path, cells)) == {CELL}
    assert store.failed(tmp_path, cells) == [other]
    assert store.read_all(tmp_path, cells) == {CELL: {"format": store.FORMAT, "exits": [1]}}


def test_a_half_written_or_older_cell_is_named(tmp_path: Path) -> None:
    path = store.path_of(tmp_path, CELL)
    for text in ("{", '{"format": 0}', "[]"):
        path.write_text(text)
        with pytest.raises(OfframpError, match=f"{path.name}.*delete it"):
            store.read(path)


def test_longer_trainings_are_expected_to_take_longer() -> None:
    def work(method: str, task: str = "rte") -> float:
        return work_of(Cell("offramp-mini", task, method, 1), BACKBONES["offramp-mini"], TASKS[task])

    assert work("plain-3") < work("plain-12") < work("elasticbert") < work("offramp")
    assert work("plain-12", "rte") < work("plain-12", "mnli-small")


def test_a_probe_has_another_seed_and_each_cell_once() -> None:
    cells = only(grid(), ["backbone=minilm", "task=rte", "method=romebert,offramp"])
    probe = probed(cells, 11)
    assert len(cells) == 6
    assert [(cell.method, cell.seed) for cell in probe] == [("romebert", 11), ("offramp", 11)]
    assert probed(cells, None) == cells


def test_a_share_of_the_learning_rate() -> None:
    whole, half = (schedule_of(BACKBONES["minilm"], TASKS["rte"], share) for share in (1.0, 0.5))
    assert half == {**whole, "learning_rate": whole["learning_rate"] / 2}
