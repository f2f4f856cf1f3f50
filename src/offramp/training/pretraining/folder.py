"""The folder of a pre-training: the corpus and a checkpoint while it runs, a Hugging Face folder when it is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from offramp.backbones.base import REGISTRY
from offramp.errors import OfframpError, one_line
from offramp.interop.huggingface import EXIT_POOLING
from offramp.training.plan import write_json
from offramp.training.pretraining.card import pretraining_card
from offramp.training.pretraining.model import PretrainingModel
from offramp.training.pretraining.plan import PretrainingPlan
from offramp.training.pretraining.start import DROPOUTS, hugging_face_tensors
from offramp.training.work_folder import WorkFolder
from offramp.whole_folder import let_weights_be_read

RECORD = "pretraining.json"
LOG = "pretraining.jsonl"
MASKED_LM = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "albert": "AlbertForMaskedLM"}


@dataclass(frozen=True)
class PretrainingFolder(WorkFolder):
    """Where a pre-training keeps its things: its newest checkpoint, until the model is written."""

    record = RECORD
    sign = RECORD
    kind = "a pre-training's folder"

    @property
    def checkpoint(self) -> Path:
        return self.work / "newest.pt"

    @property
    def log(self) -> Path:
        return self.path / LOG

    def check(self, plan: Mapping[str, Any], resume: bool, overwrite: bool) -> None:
        """Refuse what would lose something, or go on with other settings."""
        if not resume:
            self.refuse_to_lose(overwrite)
            return
        begun = self.read_plan()
        for key, value in plan.items():
            if begun.get(key) != value:
                was = f"{key} was {begun.get(key)}, and now is {value}"
                raise OfframpError(f"{self.path} was begun with other settings: {was}")

    def begin(self, plan: Mapping[str, Any]) -> None:
        """Drop what an earlier run left, and write the plan down."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        write_json(self.plan, plan)

    def read_plan(self) -> dict[str, Any]:
        try:
            plan = json.loads(self.plan.read_text(encoding="utf-8"))
        except OSError as error:
            raise OfframpError(f"there is no pre-training to resume in {self.path}") from error
        except ValueError as error:
            raise OfframpError(f"{self.plan} is no plan of a pre-training ({one_line(error)})") from error
        if not isinstance(plan, dict):
            raise OfframpError(f"{self.plan} is no plan of a pre-training")
        return plan

    def change_plan(self, changes: Mapping[str, Any]) -> None:
        """Go on with other settings than the run was begun with, from its newest checkpoint on."""
        write_json(self.plan, {**self.read_plan(), **changes})

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by a newer one, or leave the old one whole."""
        part = self.checkpoint.with_suffix(".part")
        try:
            torch.save(state, part)
            part.replace(self.checkpoint)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as either
            part.unlink(missing_ok=True)
            raise OfframpError(f"{self.checkpoint} could not be written ({one_line(error)})") from error

    def newest(self) -> dict[str, Any] | None:
        if not self.checkpoint.is_file():
            return None
        try:
            return torch.load(self.checkpoint, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
        except (OSError, RuntimeError, EOFError, ValueError) as error:
            raise OfframpError(f"{self.checkpoint} is damaged ({one_line(error)}): begin again") from error

    def append(self, entry: Mapping[str, Any]) -> None:
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def cut_log(self, step: int) -> None:
        """Forget what was logged after the checkpoint: those steps are taken again."""
        if self.log.is_file():
            lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            self.log.write_text("".join(kept), encoding="utf-8")

    def finish(self, model: PretrainingModel, tokenizer: Any, plan: PretrainingPlan, record: Mapping[str, Any]) -> None:
        """Make it a folder that `offramp.load` and `AutoModel` open."""
        ready = self.work / "ready"
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir(parents=True)
        write_model(model, plan.family or model.backbone.family, ready)
        tokenizer.save_pretrained(ready)
        (ready / "README.md").write_text(pretraining_card(self.path.resolve().name, record), encoding="utf-8")
        for file in ready.iterdir():
            file.replace(self.path / file.name)
        write_json(self.path / RECORD, record)
        shutil.rmtree(self.work)


def write_model(model: PretrainingModel, family: str, folder: Path) -> None:
    """config.json and model.safetensors, with the dropout that fine-tuning usually has."""
    settings = {
        **model.backbone.config.to_dict(),
        **dict.fromkeys(DROPOUTS, 0.1),
        "architectures": [MASKED_LM.get(family, "ElasticBertForMaskedLM")],
    }
    settings.pop("model_type", None)
    if family == "elasticbert":
        settings |= dict.fromkeys(("max_output_layers", "num_output_layers"), model.backbone.depth)
    if not model.heads.order:  # nothing was asked of the first token
        settings[EXIT_POOLING] = "mean"
    if family == "albert":
        settings["classifier_dropout_prob"] = 0.1
    REGISTRY[family].config_class(**settings).save_pretrained(folder)
    save_file(hugging_face_tensors(model, family), folder / "model.safetensors", metadata={"format": "pt"})
    let_weights_be_read(folder)
