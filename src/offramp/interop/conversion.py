"""`offramp.convert`: any checkpoint we can open, written as an offramp folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp.interop import own
from offramp.interop.checkpoint import CONFIG, Checkpoint, read_checkpoint
from offramp.interop.dialect import Model
from offramp.interop.loading import load
from offramp.interop.vocabulary import find_tokenizer
from offramp.policies import Policy
from offramp.whole_folder import check_destination as check_folder
from offramp.whole_folder import whole_folder

POLICY = "policy.json"
BESIDE = ("README.md", POLICY, "training.json")
"""What our own folders say of a model beside its weights."""


def convert(source: str | Path, destination: str | Path, *, overwrite: bool = False, **options: Any) -> Model:
    """Open `source` with `offramp.load(source, **options)` and write it, with its tokenizer, to `destination`.

    The folder appears whole or not at all; an existing model folder is replaced only with `overwrite=True`. Of
    an offramp folder that is to stay as it is (no options), card, policy and training record come along.
    """
    check_destination(Path(destination), overwrite)
    checkpoint = read_checkpoint(source, options.pop("revision", None))
    model = load(checkpoint, **options)
    tokenizer = find_tokenizer(checkpoint.folder, model.config.backbone_config.model_type)
    as_it_is = own.recognises(checkpoint) and not any(options.values())
    beside = _beside(checkpoint) if as_it_is else {}
    if model.stored_policy is not None:
        beside[POLICY] = uncertified(model.stored_policy)
    write_folder(model, tokenizer, Path(destination), beside)
    return model


def uncertified(policy: Policy) -> str:
    """A policy.json without a certificate."""
    return json.dumps({"policy": policy.to_json()}, indent=1, ensure_ascii=False) + "\n"


def _beside(checkpoint: Checkpoint) -> dict[str, str]:
    files = [checkpoint.folder / name for name in BESIDE]
    return {path.name: path.read_text(encoding="utf-8") for path in files if path.is_file()}


def check_destination(destination: Path, overwrite: bool) -> None:
    """Refuse to write over what is not to be replaced."""
    check_folder(destination, overwrite, sign=CONFIG, kind="a model folder")


def write_folder(model: Model, tokenizer: Any, destination: Path, texts: Mapping[str, str] | None = None) -> None:
    """Write a model, its tokenizer and files of text, by name; the folder appears whole or not at all."""
    with whole_folder(destination) as written:
        model.save_pretrained(written)
        if tokenizer is not None:
            tokenizer.save_pretrained(written)
        for name, text in (texts or {}).items():
            (written / name).write_text(text, encoding="utf-8")
