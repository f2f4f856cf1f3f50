"""The whole loop by the command line: train by every recipe, evaluate, compare, predict; and the numbers agree."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from offramp.cli import run_command
from offramp.evaluation.results import Results
from offramp.recipes import REGISTRY
from offramp.tasks import task as make_task
from offramp.tasks.task import Task
from tests.generated import SPECIAL, backbone_folder, reviews_file

RECIPES = sorted(REGISTRY, key=lambda recipe: (recipe == "frozen", recipe))
"""The one that begins with a model of another's comes last."""
GLUE = Path(os.environ.get("OFFRAMP_GLUE", "glue"))
"""Where the official folders are, for the slow test on real data."""
POLICY = "entropy(0.55) | patience(1)"


def offramp(*arguments: str | Path) -> int:
    """The exit status of a command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["offramp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            run_command()
    return int(stopped.value.code or 0)


@dataclass(frozen=True)
class Loop:
    """One round of all commands, and where it left its files."""

    place: Path
    data: Sequence[str | Path]
    """What says the task to `offramp train`."""
    columns: Sequence[str]
    task: Task

    def model(self, recipe: str) -> Path:
        return self.place / recipe

    def train_and_evaluate(self, recipe: str, backbone: Path, schedule: Sequence[str]) -> None:
        out = self.model(recipe)
        trained = offramp(
            "train", *self.data, "--backbone", backbone, "--recipe", recipe, "--out", out, *schedule, "--quiet"
        )
        assert trained == 0
        assert offramp("evaluate", out, "--policy", POLICY, "--no-report") == 0

    def results(self, recipe: str) -> Results:
        return Results.read(self.model(recipe) / "evaluation" / "dev" / "results.json")

    def dev_rows(self) -> Path:
        """The dev rows as a file to predict on."""
        path = self.place / "dev.csv"
        examples = self.task.split("dev")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *self.columns])
            pairs = examples.pairs or [""] * len(examples)
            both = zip(examples.texts, pairs, strict=True)
            writer.writerows([i, *texts[: len(self.columns)]] for i, texts in enumerate(both))
        return path

    def predictions(self, recipe: str, policy: str) -> list[dict[str, Any]]:
        out = self.place / "answers.jsonl"
        options = ("--out", out, "--overwrite", "--keep", "id", "--policy", policy)
        assert offramp("predict", self.model(recipe), self.dev_rows(), *options) == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    def accuracy(self, answers: list[dict[str, Any]]) -> float:
        examples = self.task.split("dev")
        assert [row["id"] for row in answers] == [str(i) for i in range(len(examples))]
        truth = [self.task.labels[int(label)] for label in examples.labels or []]
        return sum(row["label"] == label for row, label in zip(answers, truth, strict=True)) / len(truth)

    def check(self, recipe: str) -> None:
        """Stored and live numbers are the same, at full depth and under a policy."""
        results = self.results(recipe)
        full = self.predictions(recipe, f"fixed({results.depth})")
        assert self.accuracy(full) == pytest.approx(results.full_depth.scores["accuracy"])
        assert results.point is not None
        live = self.predictions(recipe, results.point.policy)
        assert self.accuracy(live) == pytest.approx(results.point.scores["accuracy"])
        left = Counter(row["exit_layer"] for row in live)
        assert {layer: count for layer, count in results.point.exits.items() if count} == dict(left)

    def compare(self) -> None:
        out = self.place / "comparison"
        assert offramp("compare", *map(self.model, RECIPES), "--out", out) == 0
        report = (out / "report.html").read_text(encoding="utf-8")
        for recipe in RECIPES:
            assert recipe in report


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """All recipes on generated reviews."""
    place = tmp_path_factory.mktemp("loop")
    data = reviews_file(place / "reviews.csv", 240)
    own = ("--data", data, "--label", "verdict")
    loop = Loop(place, own, ["review"], make_task(data=data, label="verdict"))
    backbone = backbone_folder(place / "backbone")
    schedule = ("--epochs", "2", "--batch-size", "16", "--learning-rate", "5e-3")
    for recipe in RECIPES:
        loop.train_and_evaluate(recipe, loop.model("plain") if recipe == "frozen" else backbone, schedule)
    return loop


@pytest.mark.parametrize("recipe", RECIPES)
def test_stored_numbers_are_live_numbers(loop: Loop, recipe: str) -> None:
    files = {path.name for path in loop.model(recipe).iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "training.json", "evaluation"} <= files
    place = loop.model(recipe) / "evaluation" / "dev"
    assert {path.name for path in place.iterdir()} == {"trace.npz", "results.json", "sweep.csv", "exits.csv"}
    loop.check(recipe)


def test_compare(loop: Loop) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    loop.compare()


def test_the_policy_is_worth_testing_with(loop: Loop) -> None:
    """Rows leave at several layers, under some recipe at least."""
    points = [loop.results(recipe).point for recipe in RECIPES]
    assert max(sum(count > 0 for count in point.exits.values()) for point in points if point) > 1


def word_backbone(folder: Path, texts: Sequence[str], words: int = 2000) -> Path:
    """A small random BERT that knows the most frequent words and every letter, so that others fall to pieces."""
    counts = Counter(word for text in texts for word in re.findall(r"\w+|[^\w\s]", text.lower()))
    letters = sorted({letter for word in counts for letter in word})
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    pieces += [word for word, _ in counts.most_common(words) if len(word) > 1]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.15,
    )
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not (GLUE / "RTE").is_dir(), reason=f"no RTE in {GLUE}: name GLUE's folder in OFFRAMP_GLUE")
def test_rte(tmp_path: Path) -> None:
    """The same on the real RTE, one epoch of each recipe."""
    task = make_task("rte", data_dir=GLUE)
    examples = task.split("train")
    backbone = word_backbone(tmp_path / "backbone", [*examples.texts, *(examples.pairs or [])])
    loop = Loop(tmp_path, ("--task", "rte", "--data-dir", GLUE), ["sentence1", "sentence2"], task)
    for recipe in RECIPES:
        begins_with = loop.model("plain") if recipe == "frozen" else backbone
        loop.train_and_evaluate(recipe, begins_with, ("--epochs", "1", "--batch-size", "32"))
        loop.check(recipe)
    loop.compare()
    up = tmp_path / "up"
    assert offramp("predict", loop.model("plain"), "--task", "rte", "--data-dir", GLUE, "--submission", up) == 0
    answers = (up / "RTE.tsv").read_text().splitlines()
    assert len(answers) == len(task.split("test")) + 1
