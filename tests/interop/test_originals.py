"""What the original programs leave, from their folders to ours: heads, policies, and what was never trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

import offramp
from offramp.engine import Engine
from offramp.policies import Entropy, Fixed, Patience, Policy, Window, policy_from_json
from offramp.serving.operating_points import OperatingPoints
from offramp.tasks.encoding import Row, text_encoder
from tests.command_line import Result
from tests.generated import backbone_folder, reviews, reviews_file
from tests.originals import elasticbert_release, elbert_start, google_albert, original_folder

Run = Callable[..., Result]
FAST = ("--epochs", "1", "--learning-rate", "1e-3", "--quiet")


@pytest.fixture
def data(tmp_path: Path) -> tuple[str, ...]:
    path = reviews_file(tmp_path / "reviews.csv", 60)
    return ("--data", str(path), "--text", "review", "--label", "verdict", "--dev-share", "0.3")


def google_prefix(folder: Path) -> Path:
    return google_albert(folder) / "model.ckpt-best"


def google_converted(folder: Path) -> Path:
    offramp.convert(google_albert(folder / "google"), folder / "converted")
    return folder / "converted"


def trained(run: Run, backbone: Path, out: Path, *options: str) -> dict[str, Any]:
    """config.json of what was trained."""
    done = run("train", "--backbone", backbone, *options, *FAST, "--out", out)
    assert done.status == 0, done.err
    config: dict[str, Any] = json.loads((out / "config.json").read_text())
    return config


@pytest.mark.parametrize("start", [google_albert, google_prefix, google_converted, elbert_start])
def test_elbert_has_one_head_for_all_exits(
    start: Callable[[Path], Path], run: Run, data: tuple[str, ...], tmp_path: Path
) -> None:
    backbone = start(tmp_path / "start")
    config = trained(run, backbone, tmp_path / "model", *data, "--recipe", "elbert")
    assert (set(config["poolers"]), set(config["classifiers"])) == ({0}, {0})
    assert len(config["classifiers"]) == config["backbone_config"]["num_hidden_layers"] > 1
    own = trained(run, backbone, tmp_path / "own", *data, "--recipe", "elbert", "--own-heads")
    assert len(set(own["classifiers"])) == len(own["classifiers"])


def test_a_config_with_elberts_settings_opens_and_trains_as_it_says(
    run: Run, data: tuple[str, ...], tmp_path: Path
) -> None:
    start = elbert_start(tmp_path / "start", weight_name="equal", num_exit_layers=2, use_fc2=True, fc_size2=6)
    config = trained(run, start, tmp_path / "model", *data, "--recipe", "elbert")
    assert sorted(set(config["classifiers"])) == [0, 1]
    assert config["classifier_size"] == 6
    assert config["untrained_exits"] == []
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["recipe"]["weights"] == "equal"
    # The original leaves by what config.json says; so does the folder, and says that nobody certified it.
    policy = json.loads((tmp_path / "model" / "policy.json").read_text())
    assert policy_from_json(policy["policy"]) == Entropy(0.1, normalised=True) | Window(2)
    assert "not certified" in run("predict", tmp_path / "model", "a good film").err


def test_the_file_that_exit_config_path_names_counts(tmp_path: Path) -> None:
    start = elbert_start(tmp_path / "start", exit_config_path="exit_config.json")
    (start / "exit_config.json").write_text("")  # as the README has it
    assert len(set(offramp.load(start).exits.classifier_of)) == 1
    (start / "exit_config.json").write_text('{"num_exit_layers": 4}')
    assert len(set(offramp.load(start).exits.classifier_of)) == 4
    (start / "exit_config.json").write_text("{")
    with pytest.raises(offramp.OfframpError, match=r"exit_config.json is not valid JSON"):
        offramp.load(start)


STORED: list[tuple[str, dict[str, Any], dict[str, Any] | None, Policy | None]] = [
    ("elbert_c2", {"cnt_thres": 3}, None, Entropy(0.1, normalised=True) | Window(3)),
    ("elbert_c3", {"cnt_thres": 3}, None, Entropy(0.1, normalised=True) | Window(3, published=True)),
    ("elbert_c2", {"thres_name": "entropy", "exit_thres": 0.4}, None, Entropy(0.4, normalised=True)),
    ("elbert_c2", {"thres_name": "bias_3"}, None, None),
    (
        "elbert_c2",
        {"thres_name": "bias_3", "range_tmp": 0.2, "cnt_thres": 4},
        None,
        Entropy(0.1, normalised=True) | Window(4, "stable", range=0.2),
    ),
    ("deebert_bert", {}, {"early_exit_entropy": 0.15}, Entropy(0.15)),
    ("deebert_bert", {}, {"early_exit_entropy": -1}, None),
    ("deebert_bert", {}, None, None),
    ("romebert_sd", {"early_exit_entropy": 0.1}, None, Entropy(0.1)),
    ("elasticbert_dynamic", {}, {"early_exit_entropy": "0.3"}, Entropy(0.3)),
    ("elasticbert_dynamic", {}, {"early_exit_entropy": "0.3,0.4,0.5"}, None),
    ("elasticbert_dynamic", {}, {"patience": "3"}, Patience(3)),
    ("elasticbert_regression", {}, {"patience": "3", "regression_threshold": 0.94}, Patience(3, 0.94)),
]


@pytest.mark.parametrize(("case", "settings", "arguments", "policy"), STORED)
def test_stored_exit_settings_become_the_policy(
    case: str,
    settings: dict[str, Any],
    arguments: dict[str, Any] | None,
    policy: Policy | None,
    run: Run,
    tmp_path: Path,
) -> None:
    original = original_folder(tmp_path / "original", case, arguments, **settings)
    done = run("convert", original, tmp_path / "model")
    assert done.status == 0, done.err
    kept = tmp_path / "model" / "policy.json"
    last = Fixed(offramp.load(original).exits.layers[-1])
    for place in (original, tmp_path / "model"):
        assert Engine(place, backend="torch").policy == (policy or last), place
    assert kept.exists() == (policy is not None)
    assert ("not certified" in done.out) == (policy is not None)


def test_arguments_that_hold_code_are_not_run(tmp_path: Path) -> None:
    original = original_folder(tmp_path / "original", "deebert_bert")
    (original / "training_args.bin").write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path / "ran") + b"'\ntR.")
    assert offramp.load(original).stored_policy is None
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", ["base", "chinese"])
def test_elasticberts_static_usage(
    shape: str, layers: int, run: Run, data: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = elasticbert_release(tmp_path / "released", layer_norm_eps=1e-8 if shape == "base" else 1e-12)
    exits = ("--exit-layers", str(layers)) if layers % 2 else ()
    config = trained(
        run, released, tmp_path / "model", *data, "--layers", str(layers), *exits, "--recipe", "plain", "--epochs", "1"
    )
    assert (config["exit_layers"], config["backbone_config"]["num_hidden_layers"]) == ([layers], layers)
    assert config["backbone_config"]["layer_norm_eps"] == (1e-8 if shape == "base" else 1e-12)
    cut = offramp.load(released, layers=layers, exit_layers=[layers])
    pooler = offramp.load(released).exits.poolers[str(layers - 1)]  # that of this layer, not of the last
    assert (next(iter(cut.exits.poolers.values())).weight == pooler.weight).all()


def test_what_was_never_trained_is_known_and_said(
    run: Run, data: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = backbone_folder(tmp_path / "backbone")
    assert run("convert", backbone, tmp_path / "encoder").status == 0
    assert json.loads((tmp_path / "encoder" / "config.json").read_text())["untrained_exits"] == [0, 1, 2]
    caplog.clear()
    assert run("predict", tmp_path / "encoder", "a good film").status == 0
    assert "the exits after layers 3 were never trained" in caplog.text
    # Exits that nobody trained can still be chosen.
    options = ("--exit-layers", "1,3", "--pooling", "mean", "--shared-head", "--recipe", "elasticbert")
    config = trained(run, tmp_path / "encoder", tmp_path / "model", *data, *options)
    assert (config["exit_layers"], config["pooling"], config["classifiers"]) == ([1, 3], "mean", [0, 0])
    assert config["untrained_exits"] == []
    caplog.clear()
    assert run("predict", tmp_path / "model", "a good film", "--policy", "fixed(1)").status == 0
    assert "never trained" not in caplog.text
    refused = run("train", "--backbone", tmp_path / "model", *data, "--exit-layers", "2,3", "--out", tmp_path / "x")
    assert "its exits are trained, exit_layers cannot be chosen" in refused.err


def test_plain_has_the_last_exit_alone_unless_told(
    run: Run, data: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backbone = backbone_folder(tmp_path / "backbone")
    assert trained(run, backbone, tmp_path / "plain", *data, "--recipe", "plain")["exit_layers"] == [3]
    refused = run("predict", tmp_path / "plain", "a good film", "--policy", "fixed(1)")
    assert refused.status == 2
    asked = trained(run, backbone, tmp_path / "asked", *data, "--recipe", "plain", "--exit-layers", "1,2,3")
    assert (asked["exit_layers"], asked["untrained_exits"]) == ([1, 2, 3], [0, 1])
    for command in (("predict", "a good film", "--policy", "fixed(1)"), ("evaluate", "--no-report")):
        caplog.clear()
        assert run(command[0], tmp_path / "asked", *command[1:]).status == 0
        assert "were never trained" in caplog.text
    caplog.clear()
    assert run("predict", tmp_path / "asked", "a good film").status == 0  # at full depth
    assert "never trained" not in caplog.text


@pytest.mark.parametrize("recipe", ["frozen", "deebert+sd", "offramp"])
def test_recipes_give_a_plain_model_its_exits(recipe: str, run: Run, data: tuple[str, ...], tmp_path: Path) -> None:
    backbone = backbone_folder(tmp_path / "backbone")
    trained(run, backbone, tmp_path / "plain", *data, "--recipe", "plain", "--pooling", "mean")
    plain = offramp.load(tmp_path / "plain")
    grown = offramp.load(tmp_path / "plain", exit_layers=[1, 2, 3])
    assert grown.config.untrained_exits == [0, 1]
    head, before = grown.exits.classifiers["2"], next(iter(plain.exits.classifiers.values()))
    assert (head.weight == before.weight).all()
    config = trained(run, tmp_path / "plain", tmp_path / "model", *data, "--recipe", recipe)
    assert (config["exit_layers"], config["untrained_exits"]) == ([1, 2, 3], [])


def test_the_kept_last_highway_is_untrained(tmp_path: Path) -> None:
    original = original_folder(tmp_path / "original", "deebert_bert")
    model = offramp.load(original, legacy_last_exit=True)
    assert model.config.untrained_exits == [3]
    assert model.config.exit_layers == [1, 2, 3, 4, 4]
    model.save_pretrained(tmp_path / "saved")
    assert offramp.load(tmp_path / "saved", layers=3).config.untrained_exits == []


def test_a_classifier_of_two_layers_answers_alike_in_every_backend(tmp_path: Path) -> None:
    original = original_folder(tmp_path / "original", "elbert_opt_ownpooler_fc2", use_out_pooler=False)
    model = offramp.load(original)
    model.save_pretrained(tmp_path / "saved")
    texts = ["a good film", "the bad plot , a poor story and an awful cast"]
    answers = {
        backend: Engine(offramp.load(original), "fixed(5)", backend=backend, precision="fp32")(texts)
        for backend in ("torch", "onnx")
    }
    for ours, theirs in zip(*answers.values(), strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    again = offramp.load(tmp_path / "saved")
    assert all((again.state_dict()[name] == value).all() for name, value in model.state_dict().items())


def test_ebert_answers_as_if_padded_on_request(run: Run, tmp_path: Path) -> None:
    """The original's answers depend on `max_seq_length`; ours only where that is asked for."""
    original = original_folder(tmp_path / "original", "ebert_bert_cls")
    text = "a good film"

    def score(*options: str) -> float:
        done = run("predict", original, text, "--backend", "torch", *options)
        assert done.status == 0, done.err
        return float(json.loads(done.out)["score"])

    model = offramp.load(original)
    encoder = text_encoder(model, 32)
    batch = encoder.pad([*encoder([text]), Row([0] * 32, [0] * 32)])  # as the original pads it
    with torch.no_grad():
        padded = model(**{name: tensor[:1] for name, tensor in batch.items()}).logits.softmax(-1).max().item()
    assert score("--max-length", "32", "--original-padding") == pytest.approx(padded, abs=1e-5)
    assert score("--max-length", "32") == score("--max-length", "16")
    refused = run("predict", original_folder(tmp_path / "other", "deebert_bert"), text, "--original-padding")
    assert "the model has no gates that look at padding" in refused.err


@pytest.mark.parametrize("written", ["released", "prefixed", "pretrained"])
def test_automodel_opens_an_elasticbert(
    written: str, run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was released, or is written by `pretrain`; the encoder is ours to the bit, and nothing in it is new."""
    folder = tmp_path / "elastic"
    if written == "pretrained":
        texts = (" ".join(text for text, _ in reviews(6, seed)) for seed in range(60))
        (tmp_path / "text.txt").write_text("\n\n".join(texts))
        shape = ("--layers", "2", "--width", "16", "--positions", "32", "--vocabulary-size", "64")
        steps = ("--steps", "1", "--batch-size", "2", "--length", "16", "--no-compile", "--family", "elasticbert")
        done = run("pretrain", "--text", tmp_path / "text.txt", *shape, *steps, "--out", folder)
        assert done.status == 0, done.err
    elif written == "released":
        elasticbert_release(folder)
    else:
        original_folder(folder, "elasticbert_dynamic", layer_norm_eps=1e-8)
    model, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert type(AutoConfig.from_pretrained(folder)).__name__ == "ElasticBertConfig"
    ids = torch.tensor(AutoTokenizer.from_pretrained(folder)(["a good film"])["input_ids"])
    ours = offramp.load(folder)
    with torch.no_grad():
        hidden = model.eval()(input_ids=ids).last_hidden_state
        assert torch.equal(hidden, ours.run(ids).states[-1])
    assert model.encoder.layer[0].output.LayerNorm.eps == ours.backbone.config.layer_norm_eps


def test_a_stored_policy_is_used_and_said_wherever_the_folder_answers(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    original = original_folder(tmp_path / "original", "elbert_c2", cnt_thres=2)
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "a good film,0\nthe bad plot,1\n" * 4)
    assert run("convert", original, tmp_path / "model").status == 0
    for folder in (original, tmp_path / "model"):
        done = run("evaluate", folder, "--data", rows, "--no-report", "--out", tmp_path / "out")
        assert done.status == 0, done.err
        assert "not certified" in done.err
        point = json.loads((tmp_path / "out" / "results.json").read_text())["point"]
        assert point["policy"] == "entropy(0.1, normalised=True) | window(2)"
        caplog.clear()
        assert OperatingPoints(offramp.load(folder)).default.policy == Entropy(0.1, normalised=True) | Window(2)
        assert "is not certified: run offramp calibrate" in caplog.text


@pytest.mark.parametrize("padded", [False, True])
def test_eberts_scores_do_not_depend_on_the_batch(padded: bool, run: Run, tmp_path: Path) -> None:
    original = original_folder(tmp_path / "original", "ebert_bert_cls")
    rows = reviews_file(tmp_path / "rows.csv", 24)
    rows.write_text(rows.read_text().replace(",good", ",0").replace(",bad", ",1"))
    task = offramp.task(test=rows, text="review", label="verdict", labels=["0", "1"])
    found = []
    for size in (1, 16):
        model = offramp.load(original)
        if padded:
            model.pad_gates_to(32)
        found.append(offramp.evaluate(model, task, split="test", max_length=32, batch_size=size).logits)
    assert found[0] == pytest.approx(found[1], abs=1e-5)
