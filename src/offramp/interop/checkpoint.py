"""Reading a checkpoint, whoever wrote it: a folder or hub name to its configuration and named tensors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from offramp.errors import OfframpError
from offramp.interop.tensorflow_checkpoint import albert_names, read_tensorflow_checkpoint

CONFIG = "config.json"
GOOGLE_CONFIG = "albert_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.vocab")


@dataclass(frozen=True)
class Checkpoint:
    """What lies in a checkpoint folder."""

    folder: Path
    weights: Path
    """The file the tensors come from, for messages."""
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def has(self, pattern: str) -> bool:
        """Whether a tensor's name matches the pattern from its start."""
        return any(re.match(pattern, name) for name in self.tensors)


def read_checkpoint(path_or_name: str | Path, revision: str | None = None) -> Checkpoint:
    """Open a local folder, a Google TF checkpoint, or a name on the hub."""
    path = Path(path_or_name)
    if tensorflow_prefix(path) is not None:
        return _read_google_albert(path)
    folder = path if path.is_dir() else _download(str(path_or_name), revision)
    config = read_json(folder / CONFIG)
    weights = _weights_file(folder)
    shards = [weights]
    if weights.name.endswith(".index.json"):
        shards = [folder / name for name in sorted(set(read_json(weights)["weight_map"].values()))]
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors.update(_read_tensors(shard))
    return Checkpoint(folder, weights, config, {_modern_name(name): tensor for name, tensor in tensors.items()})


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise OfframpError(f"{path} is missing: {path.parent} is not a model folder")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OfframpError(f"{path} is not valid JSON ({error}); copy the model again") from error
    if not isinstance(data, dict):
        raise OfframpError(f"{path} holds no JSON object; copy the model again")
    return data


def tensorflow_prefix(path: Path) -> Path | None:
    """The prefix of a TF checkpoint, given as such or as the folder it lies in; None if there is none."""
    if path.with_name(f"{path.name}.index").is_file():
        return path
    if path.is_dir() and not (path / CONFIG).exists() and (found := sorted(path.glob("*.index"))):
        return found[0].with_suffix("")
    return None


def _read_google_albert(path: Path) -> Checkpoint:
    prefix = tensorflow_prefix(path)
    assert prefix is not None
    config = read_json(prefix.parent / GOOGLE_CONFIG)
    tensors = albert_names(read_tensorflow_checkpoint(prefix))
    return Checkpoint(
        folder=prefix.parent,
        weights=prefix.with_name(f"{prefix.name}.index"),
        config=config | {"model_type": "albert"},
        tensors={name: torch.from_numpy(array.copy()) for name, array in tensors.items()},
    )


def _weights_file(folder: Path) -> Path:
    for name in WEIGHTS:
        for candidate in (folder / name, folder / f"{name}.index.json"):
            if candidate.is_file():
                return candidate
    raise OfframpError(f"{folder} has no weights: it needs {' or '.join(WEIGHTS)}")


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise OfframpError(f"{path} is missing: copy all parts of the model")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise OfframpError(
            f"{path} is damaged or holds Python objects besides weights, which offramp never runs; "
            "save the weights alone, as safetensors"
        ) from error
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        gist = " ".join(str(error).split())[:120]
        raise OfframpError(f"{path} is damaged ({gist}); copy the model again") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise OfframpError(f"{path} holds no state dict (names and tensors)")
    return tensors


def _modern_name(name: str) -> str:
    """Checkpoints of TensorFlow descent call a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _download(name: str, revision: str | None) -> Path:
    """The folder of a hub model: small files, and safetensors where there are any."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith("."):
        raise OfframpError(f"there is no folder {name}")
    import huggingface_hub

    try:
        folder = Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*SMALL_FILES, "*.safetensors"])
        )
        if not any(folder.glob("*.safetensors")):
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=["pytorch_model*.bin"])
    except (OSError, ValueError) as error:
        gist = " ".join(str(error).split())[:160]
        raise OfframpError(
            f"there is no folder {name}, and the hub has no model of that name to give ({gist})"
        ) from error
    return folder
