r"""Put a model into the box: its folder with weights in fp16, as the package ships it.

    python benchmarks/box.py runs/offramp-mini
    offramp train --task sst-2 --data-dir glue --backbone offramp-mini --pooling mean --epochs 3 --batch-size 64 \
        --learning-rate 2e-4 --warmup 0.06 --weight-decay 0.1 --seed 1 --out runs/offramp-mini-sst2
    python benchmarks/box.py runs/offramp-mini-sst2 --calibrate-on glue

What a run wrote beside the model (checkpoints, logs, evaluations) stays behind, and so do paths of the machine it was
made on. A trained model is calibrated on the dev rows of its task as it lies in the box: rounded weights are others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

import offramp
import offramp.shipped
from offramp.tasks.labels import MEANINGS
from offramp.training.plan import write_json
from offramp.whole_folder import let_weights_be_read

AS_IT_IS = ("config.json", "tokenizer.json", "tokenizer_config.json", "README.md")
RECORD = "training.json"


def put(folder: Path, box: Path) -> None:
    box.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.half() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, box / "model.safetensors", metadata={"format": "pt"})
    for name in AS_IT_IS:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, box / name)
    if (folder / RECORD).is_file():
        record = without_paths(json.loads((folder / RECORD).read_text(encoding="utf-8")))
        write_json(box / RECORD, record)
        name_labels(box / "config.json", record["task"]["name"])
    let_weights_be_read(box)


def name_labels(config: Path, task: str) -> None:
    """`negative` says more than `0`; the task's numbers are still understood."""
    names = dict(enumerate(MEANINGS.get(task, ())))
    if names:
        settings = json.loads(config.read_text(encoding="utf-8"))
        write_json(config, {**settings, "id2label": names, "label2id": {name: i for i, name in names.items()}})


def calibrated(box: Path, data: Path) -> None:
    """At most a point of accuracy lost, with 95 % confidence."""
    task = offramp.task(json.loads((box / RECORD).read_text(encoding="utf-8"))["task"]["name"], data_dir=data)
    with tempfile.TemporaryDirectory() as scratch:
        offramp.convert(box, f"{scratch}/copy")
        offramp.calibrate(f"{scratch}/copy", task, max_loss=0.01, confidence=0.95)
        policy = json.loads(Path(f"{scratch}/copy/policy.json").read_text(encoding="utf-8"))
    policy["certificate"]["data"]["source"] = task.name
    write_json(box / "policy.json", policy)


def without_paths(record: dict[str, Any]) -> dict[str, Any]:
    """A task and a backbone are known by their names; where their files lay is nobody's business."""
    task = {key: value for key, value in record["task"].items() if key != "data_dir"}
    return {**record, "task": task, "backbone": Path(record["backbone"]).name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--calibrate-on", type=Path, help="folder with the task's files")
    arguments = parser.parse_args()
    box = offramp.shipped.BOX / arguments.folder.name
    put(arguments.folder, box)
    if arguments.calibrate_on is not None:
        calibrated(box, arguments.calibrate_on)
    size = sum(file.stat().st_size for file in offramp.shipped.BOX.rglob("*") if file.is_file())
    print(f"{box.name} is in the box; all models together take {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
