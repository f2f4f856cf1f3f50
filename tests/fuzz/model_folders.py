"""What lies in a model folder: configuration, weights, tokenizer, how it was trained; and TensorFlow's checkpoints."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file

import offramp
from offramp.errors import OfframpError
from offramp.folded_folder import files_of
from offramp.interop.tensorflow_checkpoint import read_tensorflow_checkpoint
from offramp.prediction.inputs import columns_of
from offramp.tasks.encoding import text_encoder
from offramp.tasks.tables import read_table
from offramp.tasks.trained import recipe_name, trained_task, training_record
from tests.fuzz import tables
from tests.fuzz.contract import Target
from tests.fuzz.tables import written_csv
from tests.prediction.models import model_folder
from tests.tiny import tiny_backbone, tiny_gated_model

TENSORFLOW = Path(__file__).parents[1] / "interop" / "data" / "tf_albert"
INDEX = "model.ckpt-best.index"
ROWS, QUESTIONS = "rows.csv", "questions.json"


@cache
def made() -> Path:
    """A model folder to copy; it is small and complete."""
    home = TemporaryDirectory(prefix="offramp-fuzz-")
    _KEPT.append(home)
    (Path(home.name) / ROWS).write_text(written_csv() + "dull,0,10\n", encoding="utf-8")
    (Path(home.name) / QUESTIONS).write_text(json.dumps(tables.QUESTIONS), encoding="utf-8")
    return model_folder(Path(home.name), layers=2)


_KEPT: list[TemporaryDirectory[str]] = []


def copied(folder: Path, without: str = "") -> None:
    for path in made().iterdir():
        if path.name != without:
            shutil.copy(path, folder)


def bytes_of(name: str) -> list[bytes]:
    return [(made() / name).read_bytes()]


def configs() -> list[bytes]:
    own = json.loads(bytes_of("config.json")[0])
    gated = tiny_gated_model("bert", layers=2).config.to_dict()
    foreign = [tiny_backbone(family, 2).to_dict() for family in ("bert", "roberta", "albert")]
    return [json.dumps(one, default=str).encode() for one in (own, gated, *foreign)]


def pickled() -> bytes:
    file = io.BytesIO()
    torch.save(load_file(made() / "model.safetensors"), file)
    return file.getvalue()


def load(path: Path) -> None:
    offramp.load(path.parent)


def encode(path: Path) -> None:
    encoder = text_encoder(offramp.load(path.parent))
    rows = encoder(["a fine film", "dull"]) + encoder(["a fine film"], ["dull"])
    assert len(rows) == 3
    assert all(isinstance(token, int) for row in rows for token in row.input_ids)


def read_record(path: Path) -> None:
    model = loaded()
    model.name_or_path = str(path.parent)
    record = training_record(model)
    recipe_name(record)
    files_of(model, path.parent, path.parent, {"rows": 1, "source": ""})
    with suppress(OfframpError):  # the model may have been trained on other columns
        columns_of(read_table(path.parent / ROWS), model, None, None)
    with patch("offramp.tasks.sources.load_splits", no_hub), patch("offramp.tasks.hub.load_splits", no_hub):
        task = trained_task(model)
        with suppress(OfframpError):  # what it names may not be there
            for split in task.splits:
                task.split(split)


def no_hub(*_: object) -> None:
    raise OfframpError("there is no hub here")


@cache
def loaded() -> Any:
    return offramp.load(made())


def records() -> list[bytes]:
    own = {"name": "own", "data": str(made() / ROWS), "text": "text", "label": "label", "dev_share": 0.3}
    squad = {"name": "squad", "dev": str(made() / QUESTIONS)}
    glue = {"name": "glue/sst-2", "data_dir": str(made())}
    return [json.dumps({"recipe": {"name": "elbert"}, "task": task}).encode() for task in (own, squad, glue)]


def tensorflow(folder: Path) -> None:
    for path in TENSORFLOW.glob("*.*"):
        shutil.copy(path, folder)


def read_index(path: Path) -> None:
    tensors = read_tensorflow_checkpoint(path)
    assert all(hasattr(tensor, "shape") for tensor in tensors.values())


def shards() -> bytes:
    names = load_file(made() / "model.safetensors")
    return json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "weights.safetensors")}).encode()


def in_shards(folder: Path) -> None:
    copied(folder, without="model.safetensors")
    shutil.copy(made() / "model.safetensors", folder / "weights.safetensors")


INDEX_JSON, PICKLE = "model.safetensors.index.json", "pytorch_model.bin"
SETTINGS, WORDS = "tokenizer_config.json", "vocab.txt"
TARGETS = {
    "config": Target("config.json", load, configs, copied, "json", "folder"),
    "safetensors": Target("model.safetensors", load, partial(bytes_of, "model.safetensors"), copied),
    "pickle": Target(PICKLE, load, lambda: [pickled()], partial(copied, without="model.safetensors")),
    "shards": Target(INDEX_JSON, load, lambda: [shards()], in_shards, "json", "folder"),
    "tokenizer": Target("tokenizer.json", encode, partial(bytes_of, "tokenizer.json"), copied, "json", "folder"),
    "tokenizer-settings": Target(SETTINGS, encode, partial(bytes_of, SETTINGS), copied, "json", "folder"),
    "vocabulary": Target(
        WORDS, encode, partial(bytes_of, WORDS), partial(copied, without="tokenizer.json"), "bytes", "folder"
    ),
    "training": Target("training.json", read_record, records, copied, "json", "folder"),
    "tensorflow": Target(INDEX, read_index, lambda: [(TENSORFLOW / INDEX).read_bytes()], tensorflow, "bytes", "folder"),
}
