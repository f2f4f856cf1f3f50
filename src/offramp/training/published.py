"""What the papers' scripts set differently for some tasks and backbones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from offramp.errors import OfframpError
from offramp.interop.checkpoint import CONFIG, read_json
from offramp.recipes import REGISTRY, Recipe, Schedule

LAST_LOSS_FIRST = {"mnli", "qqp"}
"""Tasks on which RomeBERT's released code leaves the last exit's gradient as it is and projects the other."""

NEVER_ZERO = ("epochs", "batch_size", "learning_rate")

ROBERTA_EPOCHS = 10
"""DeeBERT's and RomeBERT's scripts; 3 for BERT."""


def published_recipe(name: str, task: str, family: str) -> Recipe:
    """A recipe by name, with the settings its authors used for this task and family of backbones."""
    if name not in REGISTRY:
        raise OfframpError(f"unknown recipe {name!r}: use one of {', '.join(sorted(REGISTRY))}")
    recipe = REGISTRY[name]()
    changes: dict[str, Any] = {}
    if name == "romebert" and task.split("/")[-1] in LAST_LOSS_FIRST:
        changes["first"] = "last"
    if name in ("deebert", "romebert") and family == "roberta":
        changes["schedule"] = dataclasses.replace(schedule_of(recipe), epochs=ROBERTA_EPOCHS)
    return dataclasses.replace(recipe, **changes)


def published_exits(recipe: str, backbone: str | Path) -> dict[str, int]:
    """How new exits are made, as options of `offramp.load`: ELBERT has one head for all exits of an ALBERT."""
    config = backbone_config(backbone)
    brings_exits = "backbone_config" in config or "num_exit_layers" in config
    shared = recipe == "elbert" and config.get("model_type") == "albert" and not brings_exits
    return {"poolers": 1, "classifiers": 1} if shared else {}


def backbone_family(backbone: str | Path) -> str:
    """`bert`, `roberta` … of a folder or hub name; `bert` where it cannot be told before loading."""
    config = backbone_config(backbone)
    return str(config.get("backbone_config", config).get("model_type", "bert"))


def backbone_config(backbone: str | Path) -> dict[str, Any]:
    """The configuration of a folder or hub name; empty where only loading can tell."""
    path = Path(backbone) / CONFIG
    if path.is_file():
        return read_json(path)
    try:
        return dict(AutoConfig.from_pretrained(str(backbone)).to_dict())
    except (OSError, ValueError):  # no such name, or a kind of model that only we know
        return {}


def schedule_of(recipe: Recipe) -> Schedule:
    schedule: Schedule = recipe.schedule  # type: ignore[attr-defined]
    return schedule


def with_settings(recipe: Recipe, schedule: Mapping[str, Any], settings: Mapping[str, str]) -> Recipe:
    """The recipe with other numbers: `schedule` by field, `settings` as typed (`gamma=0.5`)."""
    known = {field.name: field for field in dataclasses.fields(recipe) if field.name != "schedule"}
    changes: dict[str, Any] = {}
    for key, text in settings.items():
        if key not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise OfframpError(f"{recipe.name} has no setting {key!r}: {there}")
        changes[key] = _typed(text, getattr(recipe, key), f"{recipe.name}: {key}")
    numbers = {key: value for key, value in schedule.items() if value is not None}
    for key, value in numbers.items():
        check_number(key, value)
    if numbers:
        changes["schedule"] = dataclasses.replace(schedule_of(recipe), **numbers)
    return dataclasses.replace(recipe, **changes)


def check_number(key: str, value: float) -> None:
    """Refuse what no schedule can mean."""
    what, least = key.replace("_", " "), "more than 0" if key in NEVER_ZERO else "0 or more"
    if not math.isfinite(value) or value < 0 or (value == 0 and key in NEVER_ZERO):
        raise OfframpError(f"{what} must be {least}, not {value}")
    if key in ("learning_rate", "warmup", "weight_decay") and value > 1:
        raise OfframpError(f"{what} must be at most 1, not {value}")


def _typed(text: str, default: Any, what: str) -> Any:
    """What was typed, as the kind of thing the setting holds."""
    if isinstance(default, bool):
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if text.lower() in words:
            return words[text.lower()]
        raise OfframpError(f"{what} is true or false, not {text!r}")
    if isinstance(default, int | float):
        try:
            number = type(default)(text)
        except ValueError as error:
            raise OfframpError(f"{what} is a number, not {text!r}") from error
        if not math.isfinite(number):
            raise OfframpError(f"{what} is a number, not {text!r}")
        return number
    return text


def recipe_to_json(recipe: Recipe) -> dict[str, Any]:
    return {"name": recipe.name, **dataclasses.asdict(recipe)}


def recipe_from_json(data: Mapping[str, Any]) -> Recipe:
    """What `recipe_to_json` wrote."""
    settings = {key: value for key, value in data.items() if key not in ("name", "schedule")}
    if data.get("name") not in REGISTRY:
        raise OfframpError(f"unknown recipe {data.get('name')!r}: use one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[data["name"]](**settings, schedule=Schedule(**data["schedule"]))  # type: ignore[call-arg]
