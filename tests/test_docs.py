"""The documents' figures are those of the runs, their messages those of the program, their examples enough."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from offramp.policies import REGISTRY as POLICIES
from offramp.recipes import REGISTRY as RECIPES
from offramp.training.published import published_recipe, schedule_of
from tests.command_line import Result
from tests.generated import backbone_folder
from tests.pages.reading import ROOT, blocks, text_of
from tests.policies import matrix as policies
from tests.policies.test_matrix import test_extreme_logits_give_a_decision as check_policy
from tests.recipes import matrix as recipes
from tests.recipes.test_matrix import test_learns as check_recipe

DEEBERT = ("plain", "deebert", "romebert")
PAGES = (
    "explanation/gates",
    "explanation/engine",
    "explanation/calibration",
    "explanation/pretraining",
    "how-to/fine-tuned",
    "how-to/from-the-originals",
    "how-to/ray",
    "how-to/serve",
    "tutorial/own-data",
)


def test_the_message_shown_is_the_message(
    tmp_path: Path,
    run: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    backbone_folder(tmp_path / "bert-base-uncased")
    capsys.readouterr()
    (tmp_path / "reviews.csv").write_text("review,verdict\na film,good\nanother film\n")
    refused = run(
        "train", "--data", "reviews.csv", "--label", "verdict", "--backbone", "bert-base-uncased", "--out", "x"
    )
    [shown] = [block.text for block in blocks("docs/how-to/experiments.md") if block.text.startswith("error: ")]
    assert refused.err == shown


@pytest.mark.parametrize("name", PAGES)
def test_figures_of_a_page_are_those_of_the_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    page = text_of(f"docs/{name}.md")
    script = f"{Path(name).name.replace('-', '_')}_page.py"
    assert runpy.run_path(str(ROOT / "benchmarks" / script))["filled"](page) == page


def test_figures_of_the_recipes_are_those_of_the_runs(tmp_path: Path) -> None:
    page = text_of("docs/four_recipes.md")
    recipes_page = runpy.run_path(str(ROOT / "benchmarks" / "recipes_page.py"))
    assert recipes_page["filled"](page, tmp_path) == page


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_and_their_settings_are_on_their_page(name: str) -> None:
    """With what they are unless told."""
    page = text_of("docs/explanation/recipes.md")
    which, settings = page.split("## Settings")
    assert f"| `{name}` " in which
    row = next((line for line in settings.splitlines() if line.startswith(f"| `{name}` |")), "")
    for setting in fields(RECIPES[name]):
        if setting.name not in ("schedule", "base"):
            usual = f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default).lower()
            shown = f"`{setting.name}={usual}`" in row or f"`{setting.name}=false` leaves" in row
            assert shown or f"`{setting.name}`" in settings, setting.name


SCHEDULES = [
    *((name, family, None, "`plain`, `deebert`, `romebert`") for name in DEEBERT for family in ("bert", "roberta")),
    ("plain", "elasticbert", None, "`plain` on an ElasticBERT"),
    *((name, "bert", None, f"`{name}`") for name in ("elasticbert", "offramp", "elbert", "frozen")),
    *(("ebert", "bert", task, "`ebert`") for task in (None, "squad")),
]


@pytest.mark.parametrize(("name", "family", "task", "row"), SCHEDULES)
def test_schedules_of_recipes_are_on_their_page(name: str, family: str, task: str | None, row: str) -> None:
    page = text_of("docs/explanation/recipes.md").split("## Schedules")[1]
    line = next(line for line in page.splitlines() if line.startswith(f"| {row} |"))
    schedule = schedule_of(published_recipe(name, task, family))
    rate, epochs, batch, warmup, decay = (cell.strip() for cell in line.split("|")[2:-1])
    other = "SQuAD" if task else "RoBERTa" if family == "roberta" else ""
    assert float(rate) == schedule.learning_rate
    assert int(shown(epochs, other)) == schedule.epochs
    assert int(shown(batch, other)) == schedule.batch_size
    assert (float(warmup), float(decay)) == (schedule.warmup, schedule.weight_decay)


def shown(cell: str, other: str) -> str:
    """`3; RoBERTa 10` is 10 for RoBERTa, and 3 for others."""
    usual, _, special = cell.partition(";")
    return special.split()[-1] if other and other in special else usual


@pytest.fixture
def _registries_as_they_were() -> Iterator[None]:
    tables = (POLICIES, RECIPES, policies.MATRIX, recipes.MATRIX)
    saved = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, saved, strict=True):
        table.clear()
        table.update(before)


@pytest.mark.usefixtures("_registries_as_they_were")
def test_the_examples_are_all_it_takes() -> None:
    """A policy and a recipe, each by its file and its row and nothing else, take part in the matrix."""
    pages = ("docs/how-to/add-a-policy.md", "docs/how-to/add-a-recipe.md")
    policy, policy_row, recipe, recipe_row = (block.text for page in pages for block in blocks(page) if block.title)
    names: dict[str, object] = {"__name__": "example", **vars(policies), **vars(recipes)}
    names |= {"MATRIX": policies.MATRIX}
    exec(compile(policy, "policy", "exec"), names)
    exec(compile(policy_row, "policy row", "exec"), names)
    assert "margin" in POLICIES
    check_policy(policies.MATRIX["margin"])
    names |= {"MATRIX": recipes.MATRIX}
    exec(compile(recipe, "recipe", "exec"), names)
    exec(compile(recipe_row, "recipe row", "exec"), names)
    assert "pabee" in RECIPES
    check_recipe(recipes.MATRIX["pabee"], "bert", "classification")
