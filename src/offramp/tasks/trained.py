"""What a model was trained on, as its folder says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offramp.errors import OfframpError, one_line
from offramp.interop.checkpoint import read_json
from offramp.models import MultiExitModel
from offramp.tasks import task as make_task
from offramp.tasks.task import Task

RECORD = "training.json"
"""The file in a model folder that says how it was trained."""


def training_record(model: MultiExitModel) -> dict[str, Any]:
    """What `offramp train` wrote down in the model's folder; nothing where it was trained otherwise."""
    path = Path(model.name_or_path or "") / RECORD
    return read_json(path) if model.name_or_path and path.is_file() else {}


def trained_on(model: MultiExitModel) -> dict[str, Any]:
    """The record of the task that a model was trained on; nothing where there is none."""
    record = training_record(model).get("task")
    return record if isinstance(record, dict) else {}


def trained_task(model: MultiExitModel) -> Task:
    """The task a model was trained on, as its folder says."""
    if record := trained_on(model):
        try:
            return make_task(**record)
        except OfframpError as error:
            raise OfframpError(
                f"{error} (so says {model.name_or_path}/training.json; moved? name it with --data or --data-dir)"
            ) from error
        except (TypeError, ValueError, AttributeError, OSError) as error:
            raise OfframpError(
                f"{model.name_or_path}/{RECORD} names no task ({one_line(error)}): name it with --data or --task"
            ) from error
    raise OfframpError(
        f"{model.name_or_path or 'the model'} does not say what it was trained on: name a task and where its files "
        "are (--task sst-2 --data-dir DIR), or give a file (--data FILE)"
    )


def recipe_name(record: dict[str, Any]) -> str | None:
    recipe = record.get("recipe")
    return str(recipe["name"]) if isinstance(recipe, dict) and "name" in recipe else None
