"""A checkpoint that cannot be opened gets one line that names the file and the fix, by every way of opening it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

import offramp
from tests.tiny import tiny_model

WEIGHTS = "model.safetensors"


class Boom:
    """Code that unpickling would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("it-ran"),))


def change_config(folder: Path, **settings: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))


def change_weights(folder: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    changed = change(tensors.pop(name))
    save_file(tensors if changed is None else tensors | {name: changed}, folder / WEIGHTS)


def replace_by_pickle(folder: Path, content: Any) -> None:
    (folder / WEIGHTS).unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump(content, file)


def set_nan(tensor: torch.Tensor) -> torch.Tensor:
    tensor[0] = float("nan")
    return tensor


def change_backbone(folder: Path, **settings: Any) -> None:
    change_config(folder, backbone_config=tiny_model().config.backbone_config.to_dict() | settings)


MATRIX = "backbone.model.encoder.layer.1.output.dense.weight"

BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (lambda f: (f / WEIGHTS).unlink(), "has no weights: it needs model.safetensors or pytorch_model.bin"),
    "no config": (lambda f: (f / "config.json").unlink(), r"config.json is missing: .* is not a model folder"),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is not valid JSON"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "config.json holds no JSON object"),
    "empty weights": (lambda f: (f / WEIGHTS).write_bytes(b""), r"model.safetensors is damaged"),
    "cut weights": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-100]),
        r"model.safetensors is damaged .*; copy the model again",
    ),
    "garbage weights": (lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 999), r"model.safetensors is damaged"),
    "wrong shape": (
        lambda f: change_weights(f, MATRIX, lambda t: t[:, :-1].contiguous()),
        rf"model.safetensors: weight {MATRIX} has shape \(16, 23\), but config.json calls for \(16, 24\)",
    ),
    "other width": (
        lambda f: change_backbone(f, hidden_size=32),
        r"has shape \(50, 16\), but config.json calls for \(50, 32\)",
    ),
    "missing weight": (lambda f: change_weights(f, MATRIX, lambda t: None), f"weight {MATRIX} is missing"),
    "NaN weight": (lambda f: change_weights(f, MATRIX, set_nan), f"weight {MATRIX} holds NaN or infinity"),
    "more exits than layers": (
        lambda f: change_config(f, exit_layers=[1, 2, 3, 4, 5]),
        "config.json: exit after layer 5, but the backbone has 4 layers: more exits than layers",
    ),
    "no such setting": (lambda f: change_config(f, pooling="middle"), "config.json: pooling 'middle': use first"),
    "foreign tokenizer": (
        lambda f: (f / "vocab.txt").write_text("\n".join(map(str, range(51)))),
        "vocab.txt has 51 tokens, but the model's vocabulary is 50: it belongs to another model",
    ),
    "damaged tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json is not a tokenizer file"),
    "no such activation": (lambda f: change_backbone(f, hidden_act="gello"), "config.json: no model can be built"),
    "heads that do not divide": (lambda f: change_backbone(f, num_attention_heads=3), "config.json: no model can be"),
    "width that is no number": (lambda f: change_backbone(f, hidden_size="x"), "config.json: "),
    "labels in a list": (lambda f: change_config(f, id2label=["a", "b"]), "config.json: no model can be built"),
    "several labels at once": (
        lambda f: change_config(f, problem_type="multi_label_classification"),
        "config.json: several labels for one text are not supported",
    ),
    "vocabulary in another encoding": (
        lambda f: (f / "vocab.txt").write_bytes(b"caf\xe9\n"),
        "vocab.txt is not a tokenizer file",
    ),
    "index without a map": (
        lambda f: (f / WEIGHTS).rename(f / "x") and (f / f"{WEIGHTS}.index.json").write_text("{}"),
        "index.json names no weights",
    ),
    "unknown family": (lambda f: change_config(f, model_type="gpt2"), "model_type 'gpt2' is not supported; use one of"),
    "code in a pickle": (lambda f: replace_by_pickle(f, Boom()), "Python objects besides weights, which offramp never"),
    "pickle of something else": (lambda f: replace_by_pickle(f, [1, 2]), "pytorch_model.bin"),
}


@pytest.mark.parametrize("wrong", BROKEN)
def test_load(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "model"
    tiny_model().save_pretrained(folder)
    spoil, message = BROKEN[wrong]
    spoil(folder)
    with pytest.raises(offramp.OfframpError, match=message) as caught:
        offramp.load(folder)
    assert "\n" not in str(caught.value)
    assert not Path("it-ran").exists()


@pytest.mark.parametrize(
    "wrong",
    ["empty weights", "cut weights", "garbage weights", "wrong shape", "other width", "missing weight", "NaN weight"],
)
def test_from_pretrained(wrong: str, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    spoil, message = BROKEN[wrong]
    spoil(tmp_path)
    with pytest.raises(offramp.OfframpError, match=message.removeprefix("model.safetensors: ")) as caught:
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("path", [".", "./", "", "/"])
def test_a_folder_without_a_model(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(offramp.OfframpError, match="is not a model folder"):
        offramp.load(path)


@pytest.mark.parametrize("path", ["nowhere", "./nowhere", "/no/such/folder", "a/b/c", "../up", "x" * 300])
def test_missing_folder(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(offramp.OfframpError, match=f"there is no folder {path}"[:60]):
        offramp.load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 5}, "cannot keep 5 layers: the backbone has 4"),
        ({"layers": 0}, "cannot keep 0 layers"),
        ({"exits": [2, 4, 7]}, "no exit after layer 7"),
        ({"exits": "some"}, "use 'all', 'last' or a list of layers"),
        ({"exits": [2, 3]}, "the last exit is after layer 3 of 4"),
        ({"exits": 4}, "use 'all', 'last' or a list of layers"),
        ({"pooling": "mean"}, "its exits are trained, pooling cannot be chosen"),
        (
            {"poolling": "mean"},
            "there is no option 'poolling': for new exits there are classifier_size, classifiers, exit_dropout",
        ),
        ({"legacy_last_exit": True}, "only DeeBERT's checkpoints have a legacy last exit"),
    ],
)
def test_wishes_that_cannot_be_met(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(offramp.OfframpError, match=message):
        offramp.load(tmp_path, **options)


def test_elasticbert_with_more_exits_than_layers(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / "data" / "elasticbert_dynamic"
    for name in ("config.json", WEIGHTS):
        (tmp_path / name).write_bytes((golden / name).read_bytes())
    change_config(tmp_path, num_output_layers=5)
    with pytest.raises(offramp.OfframpError, match=r"config.json: num_output_layers is 5.*more exits than layers"):
        offramp.load(tmp_path)
