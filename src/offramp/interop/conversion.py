"""`offramp.convert`: any checkpoint we can open, written as an offramp folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp.interop.checkpoint import CONFIG, read_checkpoint
from offramp.interop.dialect import Model
from offramp.interop.loading import load
from offramp.interop.vocabulary import find_tokenizer
from offramp.whole_folder import check_destination as check_folder
from offramp.whole_folder import whole_folder


def convert(source: str | Path, destination: str | Path, *, overwrite: bool = False, **options: Any) -> Model:
    """Open `source` with `offramp.load(source, **options)` and write it, with its tokenizer, to `destination`.

    The folder appears whole or not at all; an existing model folder is replaced only with `overwrite=True`.
    """
    check_destination(Path(destination), overwrite)
    checkpoint = read_checkpoint(source, options.pop("revision", None))
    model = load(checkpoint, **options)
    tokenizer = find_tokenizer(checkpoint.folder, model.config.backbone_config.model_type)
    write_folder(model, tokenizer, Path(destination))
    return model


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
