"""The documents' code runs, and prints what they say it prints."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import offramp
from offramp.policies import REGISTRY as POLICIES
from offramp.recipes import REGISTRY as RECIPES
from offramp.recipes import Plain, Schedule
from tests.calibration.made_model import NAMES, labelled_file, settled_model
from tests.command_line import Result
from tests.evaluation.made_questions import squad_file
from tests.generated import backbone_folder, reviews_file
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


DOCUMENTS = ("README.md", "docs/experiments.md", "docs/gates.md", "docs/engine.md")


def commands(document: str) -> list[str]:
    """Every line of a fenced block that begins with `offramp`, or pipes into it."""
    lines = [line for language, text in blocks(document) if not language for line in text.splitlines()]
    return [line for line in lines if re.match(r"(cat \S+ \| )?offramp ", line)]


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files the documents speak of, and backbones by the names they use."""
    monkeypatch.chdir(tmp_path)
    for name in ("bert-base-uncased", "roberta-base", "offramp-mini"):
        backbone_folder(tmp_path / name, "roberta" if "roberta" in name else "bert", neurons=64)
    reviews_file(tmp_path / "reviews.csv", 60)
    reviews_file(tmp_path / "new.csv", 10)
    (tmp_path / "texts.txt").write_text("a good film\nthe bad plot\n")
    for task, header in (("SST-2", "sentence\tlabel"), ("RTE", "index\tsentence1\tsentence2\tlabel")):
        (tmp_path / "glue" / task).mkdir(parents=True)
        row = "a good film\t{}" if task == "SST-2" else "0\ta good film\ta bad film\t{}"
        labels = ("0", "1") if task == "SST-2" else ("entailment", "not_entailment")
        for split in ("train", "dev"):
            rows = [row.format(labels[i % 2]) for i in range(12)]
            (tmp_path / "glue" / task / f"{split}.tsv").write_text("\n".join([header, *rows]) + "\n")
    (tmp_path / "squad").mkdir()
    for seed, split in enumerate(("train", "dev")):
        squad_file(tmp_path / "squad" / f"{split}-v1.1.json", questions=9, version2=False, words=20, seed=seed)
    (tmp_path / "glue" / "SST-2" / "test.tsv").write_text("index\tsentence\n0\ta good film\n")
    return tmp_path


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_run(
    document: str, at_home: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order they stand there, on small files of the same names."""
    listed = commands(document)
    assert len(listed) >= 2
    for line in listed:
        line, _, output = line.partition(" > ")
        if line.startswith("cat "):
            source, line = line.removeprefix("cat ").split(" | ", 1)
            stdin = io.TextIOWrapper((at_home / source).open("rb"))
            monkeypatch.setattr("sys.stdin", stdin)
        arguments = shlex.split(line)[1:]
        if arguments[0] == "compare":  # of a model the page does not train
            shutil.copytree(at_home / "runs" / "reviews", at_home / arguments[2], dirs_exist_ok=True)
        done = run(*arguments)
        assert done.status == 0, f"{line}\n{done.err}"
        assert not output or done.out


def test_python_of_the_pages_runs(at_home: Path) -> None:
    task = offramp.task(data="reviews.csv", label="verdict")
    offramp.train("bert-base-uncased", task, "runs/reviews", Plain(Schedule(epochs=1)), quiet=True)
    offramp.evaluate("runs/reviews")
    for language, text in blocks("docs/experiments.md"):
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "docs/experiments.md", "exec"), {})
            assert "OperatingPoint(policy='entropy(0.1)'" in printed.getvalue()


def test_the_message_shown_is_the_message(at_home: Path, run: Callable[..., Result]) -> None:
    (at_home / "reviews.csv").write_text("review,verdict\na film,good\nanother film\n")
    refused = run(
        "train", "--data", "reviews.csv", "--label", "verdict", "--backbone", "bert-base-uncased", "--out", "x"
    )
    shown = next(text for _, text in blocks("docs/experiments.md") if text.startswith("error: "))
    assert refused.err == shown


@pytest.mark.parametrize(
    "name", ["gates", "engine", "explanation/calibration", "explanation/pretraining", "how-to/ray", "how-to/serve"]
)
def test_figures_of_a_page_are_those_of_the_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "benchmarks" / f"{Path(name).name}_page.py"))["filled"](page) == page


def test_commands_of_the_page_on_calibration(
    tmp_path: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = {"name": "reviews", "dev": "dev.csv", "text": "review", "label": "verdict", "labels": list(NAMES)}
    model = settled_model(tmp_path / "runs" / "reviews", trained=task)
    for seed, name in enumerate(("dev", "held_out", "new")):
        labelled_file(tmp_path / f"{name}.csv", model, 500, seed)
    listed = commands("docs/explanation/calibration.md")
    assert {line.split()[1] for line in listed} == {"calibrate", "predict", "check"}
    for line in listed:
        done = run(*shlex.split(line)[1:])
        assert done.status == 0, f"{line}\n{done.err}"


def test_figures_are_those_of_the_runs(tmp_path: Path) -> None:
    """Every number of the results page, and of the README's table, is made from the runs that are kept."""
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    results_page = runpy.run_path(str(ROOT / "benchmarks" / "results_page.py"))
    assert results_page["filled"](page, tmp_path) == page
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for row in results_page["cost_table"]("sst-2", tmp_path):
        short = " | ".join(cell.split(" ± ")[0] for cell in row.strip("| ").split(" | ")[:-1])
        assert f"| {short} |" in readme


@pytest.fixture
def _registries_as_they_were() -> Iterator[None]:
    tables = (POLICIES, RECIPES, policies.MATRIX, recipes.MATRIX)
    saved = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, saved, strict=True):
        table.clear()
        table.update(before)


@pytest.mark.usefixtures("_registries_as_they_were")
def test_contributing_examples_are_all_it_takes() -> None:
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
