"""The folder that a run writes: its plan and checkpoints while it runs, and its record once it is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from offramp.errors import OfframpError


@dataclass(frozen=True)
class WorkFolder:
    """Until a run is done everything lies in `checkpoints/`; its record is written last."""

    path: Path

    record: ClassVar[str]
    """The file that says that a run is done, and how it was."""
    sign: ClassVar[str]
    """The file by which a folder of this kind is known."""
    kind: ClassVar[str]
    """What such a folder is called."""

    @property
    def work(self) -> Path:
        return self.path / "checkpoints"

    @property
    def plan(self) -> Path:
        return self.work / "plan.json"

    @property
    def is_finished(self) -> bool:
        return (self.path / self.record).is_file() and not self.plan.is_file()

    def refuse_to_lose(self, overwrite: bool) -> None:
        """Nothing that lies in the folder is lost unless it was asked for, and nothing ever that is of another kind."""
        if self.path.exists() and not self.path.is_dir():
            raise OfframpError(f"{self.path} is a file: name a folder")
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        begun = self.plan.is_file()
        if not overwrite:
            other = "--resume to go on with the run in it, or " if begun else ""
            raise OfframpError(f"{self.path} exists and is not empty: name another folder, or say {other}--overwrite")
        if not begun and not (self.path / self.sign).is_file():
            raise OfframpError(f"{self.path} is not {self.kind}: nothing in it will be overwritten")
