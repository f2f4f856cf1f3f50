"""The model card of a pre-trained backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from offramp.training.card import an

ELASTIC = "After `import offramp`, `AutoModel` and `AutoTokenizer` of transformers open it, too: the encoder alone."
AUTO = "`AutoModel`, `AutoModelForMaskedLM` and the other Auto classes of transformers open it, too."


def pretraining_card(name: str, record: Mapping[str, Any]) -> str:
    """A README.md: what it is, how to use it, what it was trained on, and how good every exit is."""
    head = {
        "library_name": "offramp",
        "pipeline_tag": "fill-mask",
        "tags": ["early-exit", "masked-lm", record["family"]],
    }
    corpus = [
        f"| {file['name']} | {file['documents']['train']:,} | {file['tokens']['train']:,} "
        f"| {file['tokens']['held_out']:,} |"
        for file in record["corpus"]["files"]
    ]
    settings = {
        key: value for key, value in record["plan"].items() if not isinstance(value, Mapping) and value is not None
    }
    lines = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n",
        f"# {name}",
        "",
        f"{an(record['family'])} encoder of {record['layers']} layers, {record['hidden_size']} wide, "
        f"{record['parameters'] / 1e6:.1f} M weights, pre-trained with an exit after every layer by offramp: "
        "each layer has learnt to be the last one.",
        "",
        "## Use",
        "",
        "```",
        f"offramp train --backbone {name} --data yours.csv --text TEXT --label LABEL --out runs/yours",
        "```",
        "",
        ELASTIC if record["family"] == "elasticbert" else AUTO,
        "",
        "## Text",
        "",
        "| file | documents | tokens | tokens held out |",
        "|---|---|---|---|",
        *corpus,
        "",
        f"{record['tokens_seen'] / 1e6:,.0f} million tokens were seen in {record['seconds']:,.0f} s "
        f"on {record['device']}.",
        "",
        *losses(record["held_out"]),
        "## Settings",
        "",
        "| setting | value |",
        "|---|---|",
        *(f"| {key.replace('_', ' ')} | {value} |" for key, value in settings.items()),
    ]
    return "\n".join(lines) + "\n"


def losses(held_out: Mapping[str, Any] | None) -> list[str]:
    """How good every exit is; nothing where no text was held out."""
    if held_out is None:
        return []
    rows = [f"| {layer} | {loss:.3f} |" for layer, loss in enumerate(held_out["words"], start=1)]
    return ["## Masked-LM loss of each exit, on held-out documents", "", "| layer | loss |", "|---|---|", *rows, ""]
