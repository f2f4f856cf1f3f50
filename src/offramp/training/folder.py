"""The folder of a training run: checkpoints while it runs, a model folder when it is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_model, save_model

from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG
from offramp.interop.conversion import POLICY, uncertified
from offramp.interop.vocabulary import FILES
from offramp.models import MultiExitModel
from offramp.tasks.encoding import TextEncoder
from offramp.tasks.squad import WindowEncoder
from offramp.tasks.task import Task
from offramp.tasks.trained import RECORD
from offramp.training.card import model_card
from offramp.training.plan import Plan, read_plan, write_json
from offramp.training.work_folder import WorkFolder

WEIGHTS = "model.safetensors"
CARD = "README.md"
STALE = ("evaluation", "calibration", POLICY, *FILES)
"""What an earlier model in the same folder left and is not true of the new one."""


@dataclass(frozen=True)
class RunFolder(WorkFolder):
    """Where a training keeps its things.

    While it runs there is a folder for each phase with the Trainer's checkpoints and, once it is through, `finished/`.
    The model is moved up when all is done, `training.json` last.
    """

    checkpoints: int = 2

    record = RECORD
    sign = CONFIG
    kind = "a model folder"

    def phase(self, name: str) -> Path:
        return self.work / name

    def check(self, plan: Plan, resume: bool, overwrite: bool) -> None:
        """Refuse what would lose something."""
        if not resume:
            self.refuse_to_lose(overwrite)
        elif difference := plan.differs_from(read_plan(self.plan)):
            raise OfframpError(f"{self.path} was begun with other settings: {difference}")

    def check_rows(self, trained_on: str, task: Task) -> None:
        """Refuse to go on with other rows than the run was begun with. Plans of earlier versions do not name them."""
        if read_plan(self.plan).trained_on not in (None, trained_on):
            raise OfframpError(
                f"{self.path} was begun with other training rows than {task.name} has now: bring them back, or begin "
                "anew with --overwrite"
            )

    def begin(self, plan: Plan) -> None:
        """Drop what an earlier run left, and write the plan down."""
        for old in (self.work, self.path / "logs"):
            shutil.rmtree(old, ignore_errors=True)
        try:
            write_json(self.plan, plan.to_json())
        except OSError as error:
            raise OfframpError(f"{self.path} cannot be made ({error.strerror})") from error

    def last_checkpoint(self, phase: str) -> Path | None:
        """The newest checkpoint that was written whole: the Trainer writes its state last."""
        found = self.phase(phase).glob("checkpoint-*")
        for folder in sorted(found, key=lambda path: int(path.name.split("-")[-1]), reverse=True):
            try:
                json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
                return folder
            except (OSError, ValueError):
                continue
        return None

    def keep_if_best(self, phase: str, model: MultiExitModel, score: float) -> None:
        """Keep the weights that scored best on dev so far."""
        best = self.phase(phase) / "best"
        mark = best / "score.json"
        if mark.is_file() and json.loads(mark.read_text(encoding="utf-8")) >= score:
            return
        best.mkdir(parents=True, exist_ok=True)
        mark.unlink(missing_ok=True)  # weights without a score are half-written, and count for nothing
        save_model(model, str(best / WEIGHTS))
        mark.write_text(json.dumps(score), encoding="utf-8")

    def take_best(self, phase: str, model: MultiExitModel) -> None:
        load_model(model, self.phase(phase) / "best" / WEIGHTS)

    def phase_finished(self, phase: str, model: MultiExitModel, record: Mapping[str, Any]) -> None:
        """Keep a phase's weights for the next one, and drop its checkpoints."""
        scratch, finished = self.phase(phase) / "finishing", self.phase(phase) / "finished"
        shutil.rmtree(scratch, ignore_errors=True)
        model.save_pretrained(scratch)
        write_json(scratch / "phase.json", record)
        scratch.rename(finished)
        for spent in (*self.phase(phase).glob("checkpoint-*"), self.phase(phase) / "best"):
            shutil.rmtree(spent, ignore_errors=True)

    def take_finished(self, phase: str, model: MultiExitModel) -> bool:
        """Load a phase's weights if it is through."""
        finished = self.phase(phase) / "finished"
        if not finished.is_dir():
            return False
        load_model(model, finished / WEIGHTS)
        return True

    def finished_phases(self) -> list[dict[str, Any]]:
        """The records of the phases that are through, in order."""
        return [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.work.glob("*/finished/phase.json"))
        ]

    def finish(
        self,
        model: MultiExitModel,
        encoder: TextEncoder | WindowEncoder,
        plan: Plan,
        task: Task,
        about: Mapping[str, Any],
    ) -> None:
        """Make it a model folder."""
        used = {"max_length": encoder.max_length, "stride": getattr(encoder, "stride", None)}
        record = {**plan.to_json(), **used, "phases": self.finished_phases(), **about}
        ready = self.work / "ready"
        write_model(ready, model, encoder, model_card(model, self.path.resolve().name, task, record))
        if model.stored_policy is not None:
            (ready / POLICY).write_text(uncertified(model.stored_policy), encoding="utf-8")
        for name in STALE:
            stale = self.path / name
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink(missing_ok=True)
        for file in ready.iterdir():
            file.replace(self.path / file.name)
        write_json(self.path / RECORD, record)
        shutil.rmtree(self.work)

    def forget(self) -> None:
        """Leave nothing of a run that cannot be resumed."""
        shutil.rmtree(self.work, ignore_errors=True)
        if not any(self.path.iterdir()):
            self.path.rmdir()

    def how_to_go_on(self, step: int, steps: int) -> str:
        if not self.checkpoints:
            return f"stopped at step {step} of {steps}; nothing was kept (--checkpoints 0)"
        return f"stopped at step {step} of {steps}; go on with: offramp train --resume --out {self.path}"


def write_model(folder: Path, model: MultiExitModel, encoder: TextEncoder | WindowEncoder, card: str) -> None:
    """What a model needs to answer, and what it says about itself."""
    model.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)
    (folder / CARD).write_text(card, encoding="utf-8")
