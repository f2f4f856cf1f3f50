"""The documents' code runs, and prints what they say it prints."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp.policies import REGISTRY as POLICIES
from offramp.recipes import REGISTRY as RECIPES
from tests.policies import matrix as policies
from tests.policies.test_matrix import test_extreme_logits_give_a_decision as check_policy
from tests.recipes import matrix as recipes
from tests.recipes.test_matrix import test_learns as check_recipe

ROOT = Path(__file__).parents[1]


def blocks(document: str) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_readme_example_prints_what_it_says() -> None:
    listing = blocks("README.md")
    example = next(i for i, (language, _) in enumerate(listing) if language == "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(listing[example][1], "README.md", "exec"), {})
    promised = listing[example + 1][1]
    found, expected = (re.findall(r"([\d.]+)% right +(\d+)%", text) for text in (printed.getvalue(), promised))
    assert len(found) == len(expected) == 3
    for (score, cost), (promised_score, promised_cost) in zip(found, expected, strict=True):
        assert float(score) == pytest.approx(float(promised_score), abs=2)
        assert int(cost) == pytest.approx(int(promised_cost), abs=8)


@pytest.fixture
def _registries_as_they_were() -> Iterator[None]:
    tables = (POLICIES, RECIPES, policies.MATRIX, recipes.MATRIX)
    saved = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, saved, strict=True):
        table.clear()
        table.update(before)


@pytest.mark.usefixtures("_registries_as_they_were")
def test_contributing_examples_are_all_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy and a recipe, each by its file and its row and nothing else, take part in the matrix."""
    policy, policy_row, recipe, recipe_row = (
        text for language, text in blocks("CONTRIBUTING.md") if language == "python"
    )
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
