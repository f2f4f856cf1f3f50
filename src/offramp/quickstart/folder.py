"""The folder of a quickstart: claimed before the long work, replaced by the next one, emptied if it fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from offramp.errors import Interrupted, OfframpError, one_line
from offramp.interop.checkpoint import WEIGHTS
from offramp.shipped import resolve
from offramp.whole_file import whole_file

SIGN = "quickstart.json"
SPACE = 100 * 2**20
"""Bytes for everything but weights."""
COPIES = 4
"""Of the weights while a model is trained, in single precision."""


@dataclass(frozen=True)
class QuickstartFolder:
    """Where a quickstart keeps its things."""

    path: Path

    @property
    def sign(self) -> Path:
        """Settings and, once it is done, every number that was printed."""
        return self.path / SIGN

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def check(self, backbone: str) -> None:
        """Refuse a folder that is not ours to replace, and a disk that is too full."""
        if self.path.exists() and not self.path.is_dir():
            raise OfframpError(f"{self.path} is a file: name a folder with --out")
        if self.path.is_dir() and any(self.path.iterdir()) and not self.sign.is_file():
            raise OfframpError(
                f"{self.path} was not made by offramp quickstart: nothing in it will be overwritten; name another --out"
            )
        place = next(place for place in (self.path, *self.path.absolute().parents) if place.exists())
        free, needed = shutil.disk_usage(place).free, space_for(backbone)
        if free < needed:
            raise OfframpError(
                f"{self.path}: {free / 1e6:,.0f} MB are free there, and a quickstart needs {needed / 1e6:,.0f} MB: "
                "make room, or name a folder on another disk with --out"
            )

    @contextmanager
    def claimed(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """The folder without what an earlier quickstart left; and without anything of this one, if it fails."""
        self.drop()
        try:
            self.write(settings)
        except OfframpError as error:
            raise OfframpError(f"{error}: name another folder with --out") from error
        try:
            yield
        except KeyboardInterrupt:
            self.drop()
            raise Interrupted("stopped: nothing was kept; offramp quickstart starts again") from None
        except (OSError, SafetensorError) as error:
            self.drop()
            why = getattr(error, "strerror", None) or one_line(error)
            raise OfframpError(f"{self.path} could not be written ({why}): name another --out") from error
        except BaseException:
            self.drop()
            raise

    def write(self, data: Mapping[str, Any]) -> None:
        with whole_file(self.sign) as file:
            file.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    def drop(self) -> None:
        """Remove what quickstarts make, and nothing else; the sign last."""
        for folder in (self.data, self.model):
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            self.report.unlink(missing_ok=True)
            self.sign.unlink(missing_ok=True)
            self.path.rmdir()  # if nothing else is in it


def space_for(backbone: str) -> int:
    """Bytes that a quickstart from this backbone takes; of one on the hub only a part is known before it is here."""
    files = [Path(resolve(backbone)) / name for name in WEIGHTS]
    weights = max((file.stat().st_size for file in files if file.is_file()), default=0)
    return SPACE + 2 * COPIES * weights  # a file in half precision is half the size
