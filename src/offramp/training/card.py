"""The model card: what a trained folder says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from offramp.models import MultiExitModel
from offramp.recipes import REGISTRY
from offramp.tasks.task import Task

SELF_DISTILLATION = "self-distillation of its exits (Geng et al., 2021)"


def model_card(model: MultiExitModel, name: str, task: Task, record: Mapping[str, Any]) -> str:
    """A README.md for the model folder, with the metadata the Hugging Face hub reads."""
    parts = (front_matter(model, name, task, record), *body(model, name, task, record))
    return "\n".join(parts) + "\n"


def front_matter(model: MultiExitModel, name: str, task: Task, record: Mapping[str, Any]) -> str:
    data: dict[str, Any] = {
        "library_name": "offramp",
        "pipeline_tag": asks(task),
        "tags": [
            *(["early-exit"] if len(model.exits) > 1 else []),
            "adaptive-inference",
            record["recipe"]["name"],
            model.config.backbone_config.model_type,
        ],
        "metrics": list(task.metrics),
    }
    if not Path(record["backbone"]).exists():  # a name on the hub, not a folder of this machine
        data["base_model"] = record["backbone"]
    if record.get("dev"):
        result = {
            "task": {"type": asks(task)},
            "dataset": {"name": task.name, "type": task.name, "split": record["dev"]["split"]},
            "metrics": [
                {"type": record["dev"]["metric"], "value": round(list(record["dev"]["exits"].values())[-1], 4)}
            ],
        }
        data["model-index"] = [{"name": name, "results": [result]}]
    return f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---\n"


def body(model: MultiExitModel, name: str, task: Task, record: Mapping[str, Any]) -> list[str]:
    config, recipe = model.config, record["recipe"]
    depth = model.backbone.depth
    asked = f"one of {len(task.labels)} labels ({', '.join(task.labels)})" if task.labels else "a number"
    given = "pairs of texts" if task.pair else "texts"
    if task.spans:
        asked, given = "a part of the text", "a question and a text"
    files = "--data questions.json --out answers" if task.spans else "input.csv --out answers.csv"
    policy = " --policy 'entropy(0.1)'" if len(model.exits) > 1 else ""
    lines = [
        f"# {name}",
        "",
        f"{an(config.backbone_config.model_type)} encoder of {depth} layers{exits_of(model)}. {gates_of(model)}"
        f"It answers {given} with {asked}. "
        f"Trained on {task.name} by {how(recipe)} with offramp.",
        "",
        "## Use",
        "",
        "```",
        f"offramp evaluate {name}",
        f"offramp predict {name} {files}{policy}",
        "```",
        "",
        as_hugging_face_model(task),
        "",
    ]
    return [*lines, *scores(record), *settings(record)]


def asks(task: Task) -> str:
    """What the hub calls it."""
    return "question-answering" if task.spans else "text-classification"


def as_hugging_face_model(task: Task) -> str:
    opens = "AutoModelForQuestionAnswering" if task.spans else "AutoModelForSequenceClassification"
    pipeline = "" if task.spans else f' and `pipeline("{asks(task)}")`'
    number = "opens" if task.spans else "open"
    return (
        f"After `import offramp` it is also a Hugging Face model: `{opens}.from_pretrained`{pipeline} {number} it and "
        f"{'answers' if task.spans else 'answer'} with the last exit."
    )


def exits_of(model: MultiExitModel) -> str:
    if len(model.exits) == 1:
        return ""
    return f" with {len(model.exits)} exits: easy inputs leave early, hard ones go on"


def gates_of(model: MultiExitModel) -> str:
    settings = model.config.gate_settings
    if settings is None:
        return ""
    units = "neurons" if settings.block == 1 else f"blocks of {settings.block} neurons"
    return (
        f"Gates skip the heads and {units} that an input can do without (target: {1 - settings.sparsity:g} of FLOPs). "
    )


def how(recipe: Mapping[str, Any]) -> str:
    """The method, or both where gates go with exits."""
    names = {name: cls.reference or name for name, cls in REGISTRY.items()} | {"sd": SELF_DISTILLATION}
    return " and ".join(names[name] for name in recipe["name"].split("+"))


def scores(record: Mapping[str, Any]) -> list[str]:
    """The dev score of each exit."""
    dev = record.get("dev")
    if not dev:
        return []
    rows = [f"| {layer} | {100 * score:.2f} |" for layer, score in dev["exits"].items()]
    head = [
        f"## Score of each exit ({dev['split']}, {dev['rows']} rows)",
        "",
        f"| layer | {dev['metric']} |",
        "|---|---|",
    ]
    chose = record["phases"][-1].get("chosen_on_dev")  # not where gates learnt, nor of exits added to a classifier
    chosen = " The weights were chosen on these rows: expect a little less on new ones." if chose else ""
    return [*head, *rows, "", f"In percent, every row answered by that exit.{chosen}", ""]


def settings(record: Mapping[str, Any]) -> list[str]:
    """What was used, as in training.json."""
    recipe = record["recipe"]
    schedule = recipe["schedule"]
    table: dict[str, Any] = {
        "recipe": recipe["name"],
        **{key: value for key, value in recipe.items() if key not in ("name", "schedule", "base")},
        **schedule,
        "seed": record["seed"],
        "precision": record["precision"],
        "longest text in tokens": record["max_length"],
        "kept weights": record["keep"],
        "device": record["device"],
        **record["versions"],
    }
    rows = [f"| {key.replace('_', ' ')} | {value} |" for key, value in table.items() if value is not None]
    times = [f"{phase['name']}: {phase['steps']} steps, {phase['seconds']:.0f} s" for phase in record["phases"]]
    return ["## Training", "", "| setting | value |", "|---|---|", *rows, "", f"Phases: {'; '.join(times)}."]


def an(noun: str) -> str:
    """With its article, at the start of a sentence."""
    return f"{'An' if noun[0] in 'aeiou' else 'A'} {noun}"
