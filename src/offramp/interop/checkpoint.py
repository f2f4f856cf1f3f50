"""Reading a checkpoint, whoever wrote it: a folder or hub name to its configuration and named tensors."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from offramp.errors import OfframpError, one_line
from offramp.interop.tensorflow_checkpoint import albert_names, read_tensorflow_checkpoint
from offramp.near_names import did_you_mean
from offramp.shipped import resolve
from offramp.typed_json import read_object

CONFIG = "config.json"
ARGUMENTS = "training_args.bin"
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

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """What `training_args.bin` of the original programs says; empty where it is not there or holds more than that.

        It is a pickle: nothing is read from it but plain values in an `argparse.Namespace`.
        """
        path = self.folder / ARGUMENTS
        if not path.is_file():
            return {}
        try:
            with torch.serialization.safe_globals([argparse.Namespace, torch.device]):
                stored = torch.load(path, map_location="cpu", weights_only=True)
        except Exception:  # of another library, or damaged: the weights do not depend on it
            return {}
        return vars(stored) if isinstance(stored, argparse.Namespace) else {}

    def has(self, pattern: str) -> bool:
        """Whether a tensor's name matches the pattern from its start."""
        return any(re.match(pattern, name) for name in self.tensors)


def read_checkpoint(path_or_name: str | Path, revision: str | None = None) -> Checkpoint:
    """Open a local folder, a Google TF checkpoint, a model in the box, or a name on the hub."""
    try:
        path = Path(resolve(path_or_name))
        prefix = tensorflow_prefix(path)
        is_folder = path.is_dir()
    except OSError as error:  # a name no file system takes
        raise OfframpError(f"there is no folder {str(path_or_name)[:80]} ({error.strerror})") from error
    if prefix is not None:
        return _read_google_albert(prefix)
    folder = path if is_folder else _download(str(path_or_name), revision)
    config = read_json(folder / CONFIG)
    weights = _weights_file(folder)
    shards = [weights]
    if weights.name.endswith(".index.json"):
        parts = read_json(weights).get("weight_map")
        if not isinstance(parts, dict) or not all(isinstance(name, str) for name in parts.values()):
            raise OfframpError(f"{weights} names no weights (no weight_map); copy the model again")
        if strange := [name for name in parts.values() if Path(name).name != name or "\0" in name]:
            raise OfframpError(f"{weights}: {strange[0]!r} is no name of a file beside it; copy the model again")
        shards = [folder / name for name in sorted(set(parts.values()))]
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors.update(_read_tensors(shard))
    return Checkpoint(folder, weights, config, {_modern_name(name): tensor for name, tensor in tensors.items()})


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise OfframpError(f"{path} is missing: {path.parent} is not a model folder")
    try:
        return read_object(path)
    except json.JSONDecodeError as error:
        raise OfframpError(f"{path} is not valid JSON ({one_line(error)}); copy the model again") from error
    except ValueError as error:
        raise OfframpError(f"{path} holds no JSON object ({one_line(error)}); copy the model again") from error
    except OSError as error:
        raise OfframpError(f"{path} cannot be read ({error.strerror})") from error


def tensorflow_prefix(path: Path) -> Path | None:
    """The prefix of a TF checkpoint, given as such, as its index or as the folder it lies in; None if there is none."""
    if path.suffix == ".index" and path.is_file():
        return path.with_suffix("")
    if Path(f"{path}.index").is_file():
        return path
    if not path.is_dir() or (path / CONFIG).exists():
        return None
    found = [index.with_suffix("") for index in sorted(path.glob("*.index"))]
    if len(found) > 1:
        raise OfframpError(f"{path} holds several checkpoints ({', '.join(p.name for p in found)}): name one")
    return found[0] if found else None


def _read_google_albert(prefix: Path) -> Checkpoint:
    """Google's program computes its "gelu" by the tanh formula, which is called gelu_new elsewhere."""
    config = read_json(prefix.parent / GOOGLE_CONFIG)
    if config.get("hidden_act") == "gelu":
        config["hidden_act"] = "gelu_new"
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
    try:
        if not path.is_file():
            raise OfframpError(f"{path} is missing: copy all parts of the model")
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except OfframpError:
        raise
    except (UnpicklingError, LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise OfframpError(
            f"{path} is damaged or holds Python objects besides weights, which offramp never runs; "
            "save the weights alone, as safetensors"
        ) from error
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise OfframpError(f"{path} is damaged ({one_line(error)}); copy the model again") from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise OfframpError(f"{path} holds no state dict (names and tensors)")
    return tensors


def _modern_name(name: str) -> str:
    """Checkpoints of TensorFlow descent call a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _download(name: str, revision: str | None) -> Path:
    """The folder of a hub model: small files, and safetensors where there are any."""
    if Path(name).is_file():
        raise OfframpError(f"{name} is a file: expected the folder of a model")
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", name):
        raise OfframpError(f"there is no folder {name}{did_you_mean(Path(name))}")
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*SMALL_FILES, "*.safetensors"])
        )
        if not any(folder.glob("*.safetensors")):
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=["pytorch_model*.bin"])
    except (OSError, ValueError) as error:
        unknown = isinstance(error, RepositoryNotFoundError)
        said = "has no model of that name" if unknown else f"gives no model of that name ({one_line(error, 300)})"
        raise OfframpError(f"there is no folder {name}, and the hub {said}{did_you_mean(Path(name))}") from error
    return folder
