"""`offramp.convert`: any checkpoint we can open, written as an offramp folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, read_checkpoint
from offramp.interop.dialect import Model
from offramp.interop.loading import load
from offramp.interop.vocabulary import find_tokenizer


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
    if destination.exists() and not destination.is_dir():
        raise OfframpError(f"{destination} is a file: name a folder")
    if destination.exists() and any(destination.iterdir()):
        if not overwrite:
            raise OfframpError(f"{destination} exists and is not empty: name another folder, or say --overwrite")
        if not (destination / CONFIG).is_file():
            raise OfframpError(f"{destination} is not a model folder: nothing in it will be overwritten")


def write_folder(model: Model, tokenizer: Any, destination: Path, texts: Mapping[str, str] | None = None) -> None:
    """Write a model, its tokenizer and files of text, by name; the folder appears whole or not at all."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OfframpError(f"{destination.parent} cannot be made ({error.strerror})") from error
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}-") as scratch:
        written = Path(scratch) / "new"
        model.save_pretrained(written)
        if tokenizer is not None:
            tokenizer.save_pretrained(written)
        for name, text in (texts or {}).items():
            (written / name).write_text(text, encoding="utf-8")
        _swap(written, destination, Path(scratch) / "old")


def _swap(written: Path, destination: Path, aside: Path) -> None:
    """Put the new folder in its place; if that fails, the old one is back where it was."""
    if not destination.exists():
        written.rename(destination)
        return
    destination.rename(aside)
    try:
        written.rename(destination)
    except OSError:
        aside.rename(destination)
        raise
