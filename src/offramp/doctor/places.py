"""The models in the box, and the folders that are written to."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from offramp import shipped
from offramp.doctor.findings import Finding, better, broken
from offramp.doctor.libraries import check_torch
from offramp.errors import OfframpError

FOLDERS = "folders"
MODELS = "models in the box"
FEW_GB = 1.0


def models() -> Iterator[Finding]:
    """Each is opened, and answers one made-up row as the engine would."""
    check_torch()
    if not shipped.shipped_names():
        yield better(
            MODELS,
            "none",
            f"{shipped.BOX} is empty",
            "offramp quickstart needs one, or --backbone: install offramp again",
        )
    for name in shipped.shipped_names():
        try:
            yield Finding(MODELS, name, answers(name))
        except OfframpError as error:
            yield broken(MODELS, name, str(error), "install offramp again")


def answers(name: str) -> str:
    from offramp.bench.workload import made_up_rows
    from offramp.engine import Engine
    from offramp.interop import load

    model = load(name)
    engine = Engine(model)
    [answer] = engine.answer_rows(made_up_rows(1, model))
    if answer.error is not None:
        raise OfframpError(answer.error)
    return f"opens and answers ({model.backbone.depth} layers; {engine.setting})"


def caches() -> Iterator[Finding]:
    check_torch()
    from huggingface_hub import constants

    from offramp.engine import processor

    yield writable("what the processor can do", processor.memory_file().parent, "it is tried again each time")
    yield writable(
        "downloads", Path(constants.HF_HUB_CACHE), "hub names cannot be opened (HF_HOME names another place)"
    )
    yield writable("temporary files", Path(tempfile.gettempdir()), "TMPDIR names another place")
    yield writable("this folder", Path.cwd(), "name folders elsewhere with --out")


def writable(name: str, folder: Path, otherwise: str) -> Finding:
    """Whether a file can be made there, or the folder in the one above it."""
    place = next((one for one in (folder, *folder.parents) if one.is_dir()), folder)
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free / 1e9
    except OSError as error:
        why = error.strerror or "cannot be written to"
        return better(
            FOLDERS, name, f"{shown(folder)}: {why}", f"a folder that can be written to; as it is, {otherwise}"
        )
    value = f"{shown(folder)}: can be written to, {free:.1f} GB free"
    if free < FEW_GB:
        return better(FOLDERS, name, value, f"more space: {FEW_GB:g} GB holds a model and its checkpoints")
    return Finding(FOLDERS, name, value)


def shown(folder: Path) -> str:
    """As people write it: a report may be shown to others."""
    home = Path.home()
    return f"~{os.sep}{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)
