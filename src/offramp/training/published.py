"""What the papers' scripts set differently for some tasks and backbones."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download

from offramp.errors import OfframpError, one_line
from offramp.interop import elbert
from offramp.interop.checkpoint import CONFIG, GOOGLE_CONFIG, read_json, tensorflow_prefix
from offramp.recipes import EBERT, ELBERT, REGISTRY, DeeBERT, ElasticBERT, Plain, Recipe, Schedule
from offramp.recipes.deebert import SD_GAMMA
from offramp.shipped import resolve
from offramp.tasks.squad.squad_task import VERSIONS as SQUAD_VERSIONS
from offramp.tasks.task import Task

log = logging.getLogger("offramp")

LAST_LOSS_FIRST = {"mnli", "qqp"}
"""Tasks on which RomeBERT's released code leaves the last exit's gradient as it is and projects the other."""

NEVER_ZERO = ("epochs", "batch_size", "learning_rate", "max_steps", "adam_epsilon")

ROBERTA_EPOCHS = 10
"""DeeBERT's and RomeBERT's scripts, and DeeBERT's for its baseline; 3 for BERT."""

STATIC_ELASTICBERT = dataclasses.replace(ElasticBERT().schedule, epochs=10)
STATIC_LOOKS = {"early_stopping": 10, "eval_steps": 50}
"""ElasticBERT's scripts for a model without early exits."""

EBERT_ROBERTA: dict[str, Any] = {"target": 0.6, "predictor_rate": 0.01, "penalty": 2.0}
ELBERT_NUMBERS = {"weights_rate": "w_lr", "initial": "w_init"}
EBERT_SQUAD: dict[str, Any] = {"epochs": 2, "batch_size": 12}
"""EBERT's scripts for QNLI on RoBERTa, and for SQuAD."""


def benchmark_of(task: Task) -> str | None:
    """The name under which papers may have settings for a task. A user's own file may be called `mnli`, and is not."""
    own_rows = not task.spans and "data" in task.record
    return None if own_rows else task.name


def published_recipe(name: str, benchmark: str | None, family: str) -> Recipe:
    """A recipe by name, with the settings its authors used for this benchmark and family of backbones.

    `ebert+elasticbert` is EBERT's gates on a model whose exits learn by another recipe, with that recipe's schedule;
    `deebert+sd` is DeeBERT with self-distillation in its second stage.
    """
    if name == f"{DeeBERT.name}+sd":
        deebert = published_recipe(DeeBERT.name, benchmark, family)
        return dataclasses.replace(deebert, gamma=SD_GAMMA)  # type: ignore[call-arg]
    gates, plus, of_exits = name.partition("+")
    if plus:
        if gates != EBERT.name:
            raise OfframpError(f"recipe {name!r}: only ebert goes with another recipe, as in ebert+elasticbert")
        base = published_recipe(of_exits, benchmark, family)
        ebert = published_recipe(gates, benchmark, family)
        return dataclasses.replace(ebert, base=base, schedule=schedule_of(base))  # type: ignore[call-arg]
    recipe = by_name(name)()
    changes: dict[str, Any] = {}
    kind = benchmark and benchmark.split("/")[-1]
    if name == "romebert" and kind in LAST_LOSS_FIRST:
        changes["first"] = "last"
    if name == "plain" and family == "elasticbert":
        changes["schedule"] = STATIC_ELASTICBERT
    if name in ("deebert", "romebert", "plain") and family == "roberta":
        changes["schedule"] = dataclasses.replace(schedule_of(recipe), epochs=ROBERTA_EPOCHS)
    if name == "ebert" and family == "roberta":
        changes |= EBERT_ROBERTA
    if name == "ebert" and kind in SQUAD_VERSIONS:
        changes["schedule"] = dataclasses.replace(schedule_of(recipe), **EBERT_SQUAD)
    return dataclasses.replace(recipe, **changes)


def looks_at_dev(
    recipe: str | None, family: str, task: Task, early_stopping: int | None, eval_steps: int | None
) -> dict[str, Any]:
    """`early_stopping` and `eval_steps` of a plan: what was asked for, or what the authors of the recipe used."""
    wanted = STATIC_LOOKS if (recipe, family) == ("plain", "elasticbert") and early_stopping is None else {}
    if early_stopping and not task.dev_splits:
        raise OfframpError(f"{task.name} has no dev rows to stop early by: give some (--dev), or omit --early-stopping")
    if wanted and not task.dev_splits:
        log.warning("%s has no dev rows: training without ElasticBERT's early stopping", task.name)
        wanted = {}
    given = {"early_stopping": early_stopping, "eval_steps": eval_steps}
    return {**wanted, **{name: value for name, value in given.items() if value is not None}}


def by_name(name: str) -> type[Recipe]:
    if name not in REGISTRY:
        raise OfframpError(f"unknown recipe {name!r}: use one of {', '.join(sorted(REGISTRY))}")
    return REGISTRY[name]


def published_exits(recipe: str, backbone: str | Path, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Options of `offramp.load` for the exits: `chosen` and, where that leaves it open, what the method has.

    `plain`, and EBERT by itself, have the last exit only: they would train no other. ELBERT has one head for all exits
    of an ALBERT. A model whose only exit is its last one gets new ones for recipes that need them.
    """
    chosen = dict(chosen or {})
    config = backbone_config(backbone)
    own = "backbone_config" in config
    options: dict[str, Any] = {}
    if not {"exits", "exit_layers"} & chosen.keys():
        if recipe in (Plain.name, EBERT.name):
            options["exits"] = "last"
        elif own and len(config.get("exit_layers") or ()) == 1 and not config.get("gates"):
            options["exit_layers"] = list(range(1, (chosen.get("layers") or config["exit_layers"][0]) + 1))
    albert = backbone_family(backbone) == "albert" and not (brings_exits(backbone) or elbert.is_config(config))
    if albert and recipe.split("+")[-1] == ELBERT.name:
        options |= {"poolers": 1, "classifiers": 1}
    return options | chosen


def brings_exits(backbone: str | Path) -> bool:
    """Whether a folder or hub name is of a model with trained exits below its last one."""
    config = backbone_config(backbone)
    if "backbone_config" not in config:
        return False
    below_last = range(len(config.get("exit_layers") or ()) - 1)
    return not set(below_last) <= set(config.get("untrained_exits") or ())


def settings_of_backbone(recipe: Recipe, backbone: str | Path) -> Recipe:
    """ELBERT with the weights of the losses that its own config.json asks for."""
    config = backbone_config(backbone)
    if not isinstance(recipe, ELBERT) or not elbert.is_config(config):
        return recipe
    config = elbert.settings_of(Path(resolve(backbone)), config)
    weights = {"dyn": "dynamic", "equal": "equal"}.get(str(config.get("weight_name")), recipe.weights)
    numbers = {ours: float(config[theirs]) for ours, theirs in ELBERT_NUMBERS.items() if theirs in config}
    return dataclasses.replace(recipe, weights=weights, **numbers)  # type: ignore[arg-type]


def backbone_family(backbone: str | Path) -> str:
    """`bert`, `roberta` … of a folder or hub name; `bert` where it cannot be told before loading."""
    config = backbone_config(backbone)
    unsaid = "albert" if elbert.is_config(config) else "bert"
    return str(config.get("backbone_config", config).get("model_type", unsaid))


def backbone_config(backbone: str | Path) -> dict[str, Any]:
    """The configuration of a folder or hub name; empty where only loading can tell."""
    path = Path(resolve(backbone)) / CONFIG
    if path.is_file():
        return read_json(path)
    if prefix := tensorflow_prefix(path.parent):
        return read_json(prefix.parent / GOOGLE_CONFIG) | {"model_type": "albert"}
    try:  # without a network this fails at once; transformers' own way asks for half a minute
        return read_json(Path(snapshot_download(str(backbone), allow_patterns=[CONFIG])) / CONFIG)
    except (OSError, ValueError):  # no such name: loading says so
        return {}


def schedule_of(recipe: Recipe) -> Schedule:
    schedule: Schedule = recipe.schedule  # type: ignore[attr-defined]
    return schedule


def with_settings(recipe: Recipe, schedule: Mapping[str, Any], settings: Mapping[str, str]) -> Recipe:
    """The recipe with other numbers: `schedule` by field, `settings` as typed (`gamma=0.5`)."""
    own = settings_of(recipe)
    changes: dict[str, Any] = {}
    if isinstance(recipe, EBERT):  # what it does not know is the other recipe's
        theirs = {key: text for key, text in settings.items() if key not in own and key in settings_of(recipe.base)}
        settings = {key: text for key, text in settings.items() if key not in theirs}
        changes["base"] = with_settings(recipe.base, {}, theirs)
        known = [*own, *settings_of(recipe.base)]
    else:
        known = own
    for key, text in settings.items():
        if key not in own:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise OfframpError(f"{recipe.full_name} has no setting {key!r}: {there}")
        changes[key] = _typed(text, getattr(recipe, key), f"{recipe.name}: {key}")
    numbers = {key: value for key, value in schedule.items() if value is not None}
    for key, value in numbers.items():
        check_number(key, value)
    if numbers:
        changes["schedule"] = dataclasses.replace(schedule_of(recipe), **numbers)
    return dataclasses.replace(recipe, **changes)


def settings_of(recipe: Recipe) -> list[str]:
    """Names of the numbers and words a user can set."""
    return [field.name for field in dataclasses.fields(recipe) if field.name not in ("schedule", "base")]


def check_number(key: str, value: float) -> None:
    """Refuse what no schedule can mean."""
    what, least = key.replace("_", " "), "more than 0" if key in NEVER_ZERO else "0 or more"
    if not math.isfinite(value) or value < 0 or (value == 0 and key in NEVER_ZERO):
        raise OfframpError(f"{what} must be {least}, not {value}")
    if key in ("learning_rate", "warmup", "weight_decay", "adam_epsilon") and value > 1:
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
    data = {"name": recipe.full_name, **dataclasses.asdict(recipe)}
    if isinstance(recipe, EBERT):
        data["base"] = recipe_to_json(recipe.base)
    return data


def recipe_from_json(data: Mapping[str, Any]) -> Recipe:
    """What `recipe_to_json` wrote."""
    settings = {key: value for key, value in data.items() if key not in ("name", "schedule")}
    if isinstance(settings.get("base"), Mapping):
        settings["base"] = recipe_from_json(settings["base"])
    recipe = by_name(str(data.get("name")).split("+")[0])
    try:
        return recipe(**settings, schedule=Schedule(**data["schedule"]))  # type: ignore[call-arg]
    except (TypeError, KeyError) as error:
        raise OfframpError(
            f"recipe {data.get('name')}: these settings are of another version of offramp ({one_line(error)})"
        ) from error
