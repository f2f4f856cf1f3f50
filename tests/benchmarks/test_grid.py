"""What the study trains, and what of it is left to do."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.study import grid as grid_module
from benchmarks.study import store
from benchmarks.study.grid import (
    BACKBONES,
    METHODS,
    PROBED,
    RATES,
    SEEDS,
    TASKS,
    Cell,
    Probe,
    chosen_rates,
    grid,
    only,
    schedule_of,
    work_of,
)
from benchmarks.study.page import CELLS
from benchmarks.study.probes import main as choose
from benchmarks.study.probes import probes
from offramp.errors import OfframpError
from offramp.policies import REGISTRY as POLICIES
from offramp.training.published import published_recipe, with_settings
from tests.benchmarks.pretend_runs import settings_as_asked

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
    schedule = schedule_of(Probe("minilm", "rte", method, 11), BACKBONES["minilm"], TASKS["rte"])
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
    found = {"settings": settings_as_asked(CELL)}
    store.write(tmp_path, CELL, found)
    assert set(cells) - set(store.missing(tmp_path, cells)) == {CELL}
    assert store.failed(tmp_path, cells) == [other]
    assert store.read_all(tmp_path, cells) == {CELL: {"format": store.FORMAT, **found}}


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


def rate_of(cell: Cell) -> float:
    return float(settings_as_asked(cell)["recipe"]["schedule"]["learning_rate"])


def test_a_probe_tries_a_share_of_the_learning_rate_with_a_seed_of_its_own() -> None:
    tried = probes()
    assert len({probe.name for probe in tried}) == len(tried)
    assert not {probe.seed for probe in tried} & set(SEEDS)
    whole, half = (rate_of(Probe("minilm", "rte", "romebert", 11, share)) for share in (1.0, 0.5))
    assert half == whole / 2


def probe_cells(folder: Path, good: dict[str, float]) -> None:
    """Cells of one backbone's probes; a method is best at its good share."""
    for probe in probes():
        assert isinstance(probe, Probe)
        if probe.backbone != PROBED:
            continue
        score = 0.9 if good.get(probe.method, 1.0) == probe.share else 0.8
        points = [["fixed", 1 / 12, 1 / 12, score]]
        settings = settings_as_asked(probe)
        curves = {"common": {"on_a": points, "on_b": points}}
        store.write(folder, probe, {"settings": settings, "free": [0.5, 0.5], "curves": curves})


def test_each_method_gets_the_rate_that_suits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = tmp_path / "rates.json"
    probe_cells(tmp_path, {"romebert": 0.25, "elasticbert": 0.5})
    assert choose(["--cells", str(tmp_path), "--rates", str(rates)]) == 0
    monkeypatch.setattr(grid_module, "RATES", rates)
    chosen_rates.cache_clear()
    try:
        methods = ("plain-12", "romebert", "elasticbert", "offramp", "ebert")
        for backbone, rate in (("offramp-mini", 2e-4), ("minilm", 5e-5)):  # which was not probed
            rates_now = [rate_of(Cell(backbone, "rte", method, 1)) / rate for method in methods]
            assert rates_now == [1, 0.25, 0.5, 1, 1]
    finally:
        chosen_rates.cache_clear()


def test_the_rates_of_the_study_are_what_its_probes_say(tmp_path: Path) -> None:
    rates = tmp_path / "rates.json"
    choose(["--cells", str(CELLS / "probes"), "--rates", str(rates)])
    assert rates.read_text() == RATES.read_text()


def test_what_was_trained_otherwise_is_missing(tmp_path: Path) -> None:
    as_asked, at_another_rate, on_another_pooling = (Cell("offramp-mini", "rte", "plain-12", seed) for seed in SEEDS)
    settings = settings_as_asked(as_asked)
    store.write(tmp_path, as_asked, {"settings": settings})
    store.write(tmp_path, on_another_pooling, {"settings": {**settings, "load": {"pooling": "first"}}})
    settings["recipe"]["schedule"]["learning_rate"] /= 2
    store.write(tmp_path, at_another_rate, {"settings": settings})
    assert store.missing(tmp_path, [as_asked, at_another_rate, on_another_pooling]) == [
        at_another_rate,
        on_another_pooling,
    ]
