"""Everything that decides what a training run gives, as plain data: stored with the model, and checked on resuming."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from offramp.errors import OfframpError, one_line
from offramp.recipes.base import Schedule, one_of
from offramp.shipped import is_shipped
from offramp.typed_json import read_object, typed
from offramp.whole_file import whole_file

PRECISIONS = ("auto", "fp32", "bf16", "fp16")
KEEP = ("last", "best")
LEAST = {"accumulate": 1, "eval_steps": 1, "save_steps": 1, "stride": 1, "early_stopping": 0}


@dataclass(frozen=True)
class Plan:
    """A training run before it starts."""

    backbone: str
    task: Mapping[str, Any]
    """`Task.record`"""
    recipe: Mapping[str, Any]
    """`recipe_to_json`"""
    load: Mapping[str, Any] = field(default_factory=dict)
    """Options of `offramp.load`: layers, exits, how new exits are made."""
    max_length: int | None = None
    """Texts are cut to so many tokens; 128 where nothing is said."""
    stride: int | None = None
    """Of questions: context tokens from window to window; 128 where nothing is said."""
    seed: int = 42
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    accumulate: int = 1
    """Micro-batches a step, on each process."""
    keep: Literal["last", "best"] = "last"
    """Which weights are kept: the last, as in the papers, or the best on dev (where gates learn, still the last)."""
    freeze_embeddings: bool = False
    """Leave the embeddings as they were pre-trained: half of a small model's weights, which then cannot overfit."""
    eval_steps: int | None = None
    """Steps between looks at the dev set; None: each epoch."""
    early_stopping: int = 0
    """Looks at the dev set without a better score after which a phase stops; keeps the best weights. 0: never."""
    save_steps: int | None = None
    """Steps between checkpoints; None: each epoch."""
    trained_on: str | None = None
    """The digest of the training rows, known once they are read."""

    def __post_init__(self) -> None:
        # A folder is to be found from anywhere; a name on the hub or in the box is the same everywhere.
        if Path(self.backbone).exists() and not is_shipped(self.backbone):
            object.__setattr__(self, "backbone", str(Path(self.backbone).absolute()))
        object.__setattr__(self, "recipe", with_whole_schedule(self.recipe))
        one_of("precision", self.precision, PRECISIONS)
        one_of("keep", self.keep, KEEP)
        if not 0 <= self.seed < 2**32:
            raise OfframpError(f"seed must be 0 or more and less than 2**32, not {self.seed}")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise OfframpError(f"{name.replace('_', ' ')} must be {least} or more, not {value}")
        if self.early_stopping:
            object.__setattr__(self, "keep", "best")

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(dataclasses.asdict(self)))  # type: ignore[no-any-return]

    def differs_from(self, other: Plan) -> str | None:
        """The first setting in which two plans differ, in words; None where they are the same.

        Rows are no setting: whether they are the same is seen when they are read.
        """
        ours, theirs = self.to_json(), other.to_json()
        for key, value in ours.items():
            if value != theirs[key] and key != "trained_on":
                return f"{key} was {theirs[key]}, and now is {value}"
        return None


def with_whole_schedule(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as JSON, with the numbers that its schedule did not have in earlier versions."""
    whole = dict(recipe)
    if isinstance(recipe.get("schedule"), Mapping):
        whole["schedule"] = {**dataclasses.asdict(Schedule()), **recipe["schedule"]}
    if isinstance(recipe.get("base"), Mapping):
        whole["base"] = with_whole_schedule(recipe["base"])
    return whole


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


def read_plan(path: Path) -> Plan:
    """The plan that a run left in its folder."""
    try:
        return typed(Plan, read_object(path))  # type: ignore[no-any-return]
    except OSError as error:
        raise OfframpError(f"there is no training to resume in {path.parent} ({path.name} is not there)") from error
    except ValueError as error:
        raise OfframpError(f"{path} is no plan of a training run ({one_line(error)})") from error
