"""A box of stand-ins for the shipped models: small, and in half precision."""

from __future__ import annotations

from pathlib import Path

import offramp
from offramp.tasks import own_task
from tests.calibration.made_model import NAMES, labelled_file, settled_model
from tests.generated import backbone_folder


def in_half(folder: Path) -> Path:
    """The same folder with its weights as fp16."""
    from safetensors.torch import load_file, save_file

    weights = folder / "model.safetensors"
    save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})
    return folder


def make_box(place: Path) -> Path:
    """Two backbones, and a calibrated model; beside the box, rows that it was not calibrated on."""
    box = place / "box"
    in_half(backbone_folder(box / "offramp-mini"))
    in_half(backbone_folder(box / "offramp-mini-albert", "albert"))
    model = in_half(settled_model(box / "offramp-mini-sst2"))
    (model / "training.json").write_text('{"task": {"text": "review", "label": "verdict"}}')
    held_out = labelled_file(place / "held-out.csv", model, 500, seed=2)
    labelled_file(place / "new.csv", model, 300, seed=3)
    task = own_task(test=held_out, text="review", label="verdict", labels=NAMES)
    found = offramp.calibrate(model, task, max_loss=0.05, split="test", dry_run=True)
    assert found.certificate is not None
    found.certificate.write(model)
    return box


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
