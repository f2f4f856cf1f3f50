"""`offramp.train`: from a backbone and a task to a model folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import metadata_load
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

import offramp
from offramp.errors import Interrupted
from offramp.evaluation.trace import exit_logits
from offramp.recipes import REGISTRY, Recipe, Schedule
from offramp.tasks import Task
from offramp.tasks.encoding import text_encoder
from offramp.tasks.metrics import predictions_of
from offramp.training.progress import ShowProgress
from offramp.training.published import published_recipe, recipe_from_json, recipe_to_json, with_settings
from tests.generated import FILLER, backbone_folder, reviews_file
from tests.recipes.matrix import MATRIX

FAST = Schedule(learning_rate=5e-3, epochs=2, batch_size=16)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return backbone_folder(tmp_path_factory.mktemp("backbone"))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return offramp.task(data=reviews_file(tmp_path_factory.mktemp("data") / "reviews.csv", 240), label="verdict")


def quick(recipe: str, **schedule: Any) -> Recipe:
    return replace(MATRIX[recipe], schedule=replace(FAST, **schedule))


def weights(folder: Path) -> dict[str, Tensor]:
    return offramp.load(folder).state_dict()


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name].cpu(), right[name].cpu()) for name in left)


@pytest.mark.parametrize("recipe", sorted(REGISTRY))
def test_learns(recipe: str, backbone: Path, tmp_path: Path) -> None:
    """Every recipe, from a random backbone: the word that tells is found, and by the exits the recipe trains."""
    task = offramp.task(data=reviews_file(tmp_path / "reviews.csv", 400), label="verdict")
    settings = quick(recipe, epochs=8, learning_rate=3e-3)
    if recipe == "frozen":
        with pytest.raises(offramp.OfframpError, match="has no classifier yet: fine-tune it first"):
            offramp.train(backbone, task, tmp_path / "model", settings, quiet=True)
        offramp.train(backbone, task, tmp_path / "plain", quick("plain", epochs=8, learning_rate=3e-3), quiet=True)
        backbone = tmp_path / "plain"
    model = offramp.train(backbone, task, tmp_path / "model", settings, quiet=True)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    scores = list(record["dev"]["exits"].values())
    assert scores[-1] > 0.8
    if recipe != "plain":
        assert min(scores) > 0.8
    assert recipe_from_json(record["recipe"]) == settings
    assert [phase["name"] for phase in record["phases"]] == [phase.name for phase in quick(recipe).phases(model)]
    assert not (tmp_path / "model" / "checkpoints").exists()
    assert not model.training


def test_the_folder_is_a_hugging_face_model(backbone: Path, task: Task, tmp_path: Path) -> None:
    model = offramp.train(backbone, task, tmp_path / "model", quick("elasticbert"), quiet=True)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert same(model.state_dict(), again.state_dict())
    assert again.config.id2label == {0: "bad", 1: "good"}
    classify = pipeline("text-classification", model=again, tokenizer=AutoTokenizer.from_pretrained(tmp_path / "model"))
    assert classify("a good film")[0]["label"] in ("good", "bad")


def test_the_card_says_what_was_done(backbone: Path, task: Task, tmp_path: Path) -> None:
    offramp.train(backbone, task, tmp_path / "reviews-model", quick("romebert"), quiet=True, seed=7)
    card = tmp_path / "reviews-model" / "README.md"
    record = json.loads((tmp_path / "reviews-model" / "training.json").read_text())
    text, data = card.read_text(), metadata_load(card)
    assert data["library_name"] == "offramp"
    assert "base_model" not in data  # a folder of this machine is nobody else's business
    score = data["model-index"][0]["results"][0]["metrics"][0]
    assert score == {"type": "accuracy", "value": round(record["dev"]["exits"]["3"], 4)}
    assert "RomeBERT (Geng et al., 2021)" in text
    for layer, value in record["dev"]["exits"].items():
        assert f"| {layer} | {100 * value:.2f} |" in text
    for line in ("| seed | 7 |", "| gamma | 0.9 |", "| learning rate | 0.005 |", "one of 2 labels (bad, good)"):
        assert line in text
    assert str(tmp_path) not in text
    assert str(backbone) not in text


def test_the_same_seed_gives_the_same_weights(backbone: Path, task: Task, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        offramp.train(backbone, task, tmp_path / name, quick("elasticbert", epochs=1), quiet=True, seed=seed)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


class StopAt:
    """Sends this process a signal once so many steps are done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, phase: str, step: int) -> None:
        self.phase, self.step = phase, step
        shown = ShowProgress.on_step_end

        def on_step_end(progress: ShowProgress, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            shown(progress, args, state, control, **kwargs)
            if (progress.phase, state.global_step) == (self.phase, self.step):
                signal.raise_signal(signal.SIGTERM)

        monkeypatch.setattr(ShowProgress, "on_step_end", on_step_end)


def test_accumulating_gives_the_same_model(backbone: Path, task: Task, tmp_path: Path) -> None:
    no_dropout = backbone_without_dropout(backbone, tmp_path)
    logits = []
    for accumulate in (1, 3):
        folder = tmp_path / str(accumulate)
        model = offramp.train(no_dropout, task, folder, quick("romebert"), quiet=True, accumulate=accumulate)
        logits.append(dev_logits(model, task))
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-3, atol=1e-3)


def backbone_without_dropout(backbone: Path, into: Path) -> Path:
    folder = into / "no-dropout"
    folder.mkdir()
    for file in backbone.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def dev_logits(model: Any, task: Task) -> Any:
    encoder = text_encoder(model)
    return exit_logits(model, encoder.examples(task.split("dev")), encoder)


def test_the_best_weights_are_kept(backbone: Path, task: Task, tmp_path: Path) -> None:
    """The dev score of the model is that of the best look, not of the last."""
    recipe = quick("plain", epochs=4, learning_rate=8e-3)
    offramp.train(backbone, task, tmp_path / "model", recipe, quiet=True, keep="best", eval_steps=4)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    looks = [look["exit_3"] for look in record["phases"][0]["history"]]
    assert len(looks) == 14
    assert record["dev"]["exits"]["3"] == max(looks)
    assert "chosen on these rows" in (tmp_path / "model" / "README.md").read_text()


@pytest.mark.parametrize("keep", ["best", "last"])
def test_steps_may_end_in_the_middle_of_an_epoch(keep: str, backbone: Path, task: Task, tmp_path: Path) -> None:
    """Where there is a look, too: the only one, if the first epoch does not end."""
    settings: dict[str, Any] = {"max_steps": 5, "warmup_steps": 1, "adam_epsilon": 1e-6, "keep": keep}
    offramp.train(backbone, task, tmp_path / "model", quick("deebert"), quiet=True, **settings)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert [phase["steps"] for phase in record["phases"]] == [5, 5]
    assert [len(phase["history"]) for phase in record["phases"]] == [1, 1]
    wanted = {"max_steps": 5, "warmup_steps": 1, "adam_epsilon": 1e-6}
    assert wanted.items() <= record["recipe"]["schedule"].items()
    card = (tmp_path / "model" / "README.md").read_text()
    assert "| max steps | 5 |" in card
    assert "None" not in card


def test_a_phase_stops_when_dev_scores_do_not_rise(backbone: Path, task: Task, tmp_path: Path) -> None:
    """Each phase by its own looks; the best weights are kept."""
    settings: dict[str, Any] = {"early_stopping": 2, "eval_steps": 3, "learning_rate": 1e-6, "epochs": 3}
    offramp.train(backbone, task, tmp_path / "model", quick("deebert"), quiet=True, **settings)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert (record["early_stopping"], record["keep"]) == (2, "best")
    for phase in record["phases"]:
        scores = [look["score"] for look in phase["history"]]
        best = scores.index(max(scores))
        assert len(scores) == best + 3 < 14
        assert phase["steps"] == 3 * len(scores)
    assert record["dev"]["exits"]["3"] == max(look["exit_3"] for look in record["phases"][0]["history"])


@pytest.mark.parametrize(
    ("recipe", "keep", "chosen"),
    [
        ("ebert", "best", False),  # gates learn in the last phase
        ("ebert by blocks, retrained", "best", True),
        ("ebert by blocks, retrained", "last", False),
        ("ebert+deebert", "best", True),
    ],
)
def test_the_card_says_whether_weights_were_chosen(
    recipe: str, keep: str, chosen: bool, backbone: Path, task: Task, tmp_path: Path
) -> None:
    settings = quick(recipe, epochs=1)
    settings = replace(settings, retrain=1) if "retrained" in recipe else settings  # type: ignore[call-arg]
    offramp.train(backbone, task, tmp_path / "model", settings, quiet=True, keep=keep)
    assert ("chosen on these rows" in (tmp_path / "model" / "README.md").read_text()) == chosen


def test_checkpoints_are_bounded(backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        StopAt(patch, "joint", 20)
        with pytest.raises(Interrupted):
            offramp.train(
                backbone, task, tmp_path / "model", quick("elasticbert"), quiet=True, save_steps=2, checkpoints=3
            )
    steps = {path.name for path in (tmp_path / "model" / "checkpoints" / "1-joint").glob("checkpoint-*")}
    assert steps == {"checkpoint-16", "checkpoint-18", "checkpoint-20"}


def test_without_checkpoints_a_stopped_run_leaves_nothing(
    backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        StopAt(patch, "joint", 5)
        with pytest.raises(Interrupted, match=r"stopped at step 5 of 28; nothing was kept"):
            offramp.train(backbone, task, tmp_path / "model", quick("elasticbert"), quiet=True, checkpoints=0)
    assert not (tmp_path / "model").exists()


def test_a_half_written_checkpoint_is_passed_over(
    backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offramp.train(backbone, task, tmp_path / "whole", quick("elasticbert"), quiet=True)
    with monkeypatch.context() as patch:
        StopAt(patch, "joint", 10)
        with pytest.raises(Interrupted):
            offramp.train(backbone, task, tmp_path / "model", quick("elasticbert"), quiet=True, save_steps=4)
    state = tmp_path / "model" / "checkpoints" / "1-joint" / "checkpoint-10" / "trainer_state.json"
    state.write_text(state.read_text()[:40])
    offramp.train(backbone, task, tmp_path / "model", quick("elasticbert"), quiet=True, save_steps=4, resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "model"))


def test_overwriting_keeps_the_old_model_until_the_new_one_is_there(
    backbone: Path, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    offramp.train(backbone, task, folder, quick("plain"), quiet=True)
    (folder / "policy.json").write_text("{}")
    old = weights(folder)
    with monkeypatch.context() as patch:
        StopAt(patch, "joint", 3)
        with pytest.raises(Interrupted):
            offramp.train(backbone, task, folder, quick("elasticbert"), quiet=True, overwrite=True)
    assert same(weights(folder), old)
    offramp.train(backbone, task, folder, quick("elasticbert"), quiet=True, resume=True)
    assert not same(weights(folder), old)
    assert not (folder / "policy.json").exists()  # it was calibrated for the old one


def test_frozen_embeddings_stand_still(backbone: Path, task: Task, tmp_path: Path) -> None:
    before = offramp.load(backbone).backbone.model.embeddings.state_dict()
    model = offramp.train(backbone, task, tmp_path / "m", quick("elasticbert"), quiet=True, freeze_embeddings=True)
    assert same(before, model.backbone.model.embeddings.state_dict())


def test_regression_and_pairs(backbone: Path, tmp_path: Path) -> None:
    lines = ["sentence1\tsentence2\tscore"]
    words = [("good", 4.5), ("bad", 0.5)]
    lines += [
        f"a {filler} film\tthe {word} {end}\t{value}"
        for filler in FILLER
        for end in FILLER[:3]
        for word, value in words
    ]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    task = offramp.task(data=tmp_path / "pairs.tsv")
    model = offramp.train(backbone, task, tmp_path / "model", quick("elasticbert", epochs=6), quiet=True)
    assert model.objective.name == "regression"
    predictions = predictions_of(dev_logits(model, task)[-1])
    assert np.corrcoef(predictions, task.split("dev").labels)[0, 1] > 0.9


def test_published_settings() -> None:
    """What the papers' scripts set for some tasks and backbones, and what the user says instead."""
    assert published_recipe("romebert", "glue/mnli", "bert").first == "last"  # type: ignore[attr-defined]
    assert published_recipe("romebert", "qqp", "bert").first == "last"  # type: ignore[attr-defined]
    assert published_recipe("romebert", "glue/rte", "bert").first == "distillation"  # type: ignore[attr-defined]
    for name in ("deebert", "plain"):
        assert schedule(published_recipe(name, "glue/rte", "bert")) == Schedule(2e-5, 3, 8)
        assert schedule(published_recipe(name, "glue/rte", "roberta")) == Schedule(2e-5, 10, 8)
    static = Schedule(2e-5, 10, 32, warmup=0.06, weight_decay=0.1)
    assert schedule(published_recipe("plain", "elue/sst-2", "elasticbert")) == static
    changed = with_settings(published_recipe("romebert", "x", "bert"), {"epochs": 1, "clip": 0}, {"regularise": "no"})
    assert (schedule(changed).epochs, schedule(changed).clip, changed.regularise) == (1, 0, False)  # type: ignore[attr-defined]
    for recipe in MATRIX.values():
        assert recipe_from_json(json.loads(json.dumps(recipe_to_json(recipe)))) == recipe


def schedule(recipe: Recipe) -> Schedule:
    found: Schedule = recipe.schedule  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("family", "heads"), [("albert", 1), ("bert", 3)])
def test_elbert_on_albert_has_one_head(family: str, heads: int, task: Task, tmp_path: Path) -> None:
    folder = backbone_folder(tmp_path / "backbone", family)
    model = offramp.train(folder, task, tmp_path / "model", quick("elbert", epochs=1), quiet=True)
    assert len(model.exits.classifiers) == heads
    again = offramp.train(tmp_path / "model", task, tmp_path / "again", quick("elbert", epochs=1), quiet=True)
    assert len(again.exits.classifiers) == heads  # a model that brings its exits keeps them


WRONG: Sequence[tuple[dict[str, Any], str]] = [
    ({"recipe": "rombert"}, "unknown recipe 'rombert': use one of deebert"),
    ({"precision": "int8"}, "precision='int8': use 'auto'"),
    ({"precision": "bf16"}, "bf16 training needs a GPU"),
    ({"accumulate": 0}, "accumulate must be 1 or more"),
    ({"keep": "first"}, "keep='first': use 'last' or 'best'"),
    ({"max_length": 1000}, "max length 1000: the model takes 8 to 40 tokens"),
    ({"backbone": "no/such/folder"}, "no/such/folder"),
    ({"max_steps": 0}, "max steps must be more than 0, not 0"),
    ({"adam_epsilon": 0.0}, "adam epsilon must be more than 0, not 0.0"),
    ({"warmup_steps": 81}, "warmup steps 81: phase fine-tune has only 81 steps, and the learning rate would never"),
    ({"warmup_steps": 5, "max_steps": 3}, "warmup steps 5: phase fine-tune has only 3 steps"),
    ({"early_stopping": -1}, "early stopping must be 0 or more, not -1"),
    ({"stride": 0}, "stride must be 1 or more, not 0"),
    ({"stride": 16}, "stride 16: reviews has no contexts to read in windows: omit --stride"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_settings(options: dict[str, Any], message: str, backbone: Path, task: Task, tmp_path: Path) -> None:
    if "bf16" in options.values() and torch.cuda.is_available():
        pytest.skip("this machine trains in bf16")
    arguments: dict[str, Any] = {"backbone": backbone, "task": task, "out": tmp_path / "m", "recipe": "plain"} | options
    with pytest.raises(offramp.OfframpError, match=message):
        offramp.train(**arguments, quiet=True)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"gama": "1"}, "romebert has no setting 'gama': it has gamma"),
        ({"gamma": "much"}, "gamma is a number"),
        ({"gamma": "nan"}, "gamma is a number, not 'nan'"),
        ({"gamma": "1.5"}, "gamma is a share, 0 to 1"),
        ({"temperature": "0"}, "temperature must be more than 0"),
        ({"regularise": "perhaps"}, "regularise is true or false"),
    ],
)
def test_wrong_recipe_settings(setting: dict[str, str], message: str) -> None:
    with pytest.raises(offramp.OfframpError, match=message):
        with_settings(published_recipe("romebert", "x", "bert"), {}, setting)


def test_what_only_the_small_loop_can_do_is_refused(backbone: Path, task: Task, tmp_path: Path) -> None:
    with pytest.raises(offramp.OfframpError, match="only train_on_batches honours it"):
        offramp.train(backbone, task, tmp_path / "model", replace(quick("elbert"), keep_gradient=True), quiet=True)  # type: ignore[call-arg]
    assert not (tmp_path / "model").exists()


def test_two_exits_after_one_layer_have_names_of_their_own(backbone: Path, task: Task, tmp_path: Path) -> None:
    load = {"exit_layers": [1, 3, 3]}
    offramp.train(backbone, task, tmp_path / "model", quick("elasticbert", epochs=1), quiet=True, load=load)
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert list(record["dev"]["exits"]) == ["1", "3", "3b"]
    assert {"exit_1", "exit_3", "exit_3b"} <= record["phases"][0]["history"][0].keys()


def test_no_training_rows(backbone: Path, tmp_path: Path) -> None:
    reviews_file(tmp_path / "dev.csv", 20)
    task = offramp.task(dev=tmp_path / "dev.csv", labels=["bad", "good"], label="verdict")
    with pytest.raises(offramp.OfframpError, match=r"no training rows here \(only dev\)"):
        offramp.train(backbone, task, tmp_path / "model", "plain", quiet=True)
