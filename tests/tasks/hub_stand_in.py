"""Small sets that look like the hub's, in place of the hub."""

from __future__ import annotations

from typing import Any

NAMES = {
    "cola": ["unacceptable", "acceptable"],
    "sst2": ["negative", "positive"],
    "mrpc": ["not_equivalent", "equivalent"],
    "qqp": ["not_duplicate", "duplicate"],
    "mnli": ["entailment", "neutral", "contradiction"],
    "ax": ["entailment", "neutral", "contradiction"],
    "qnli": ["entailment", "not_entailment"],
    "rte": ["entailment", "not_entailment"],
    "wnli": ["not_entailment", "entailment"],
}
TEXTS = {
    **dict.fromkeys(("cola", "sst2"), ("sentence",)),
    **dict.fromkeys(("mrpc", "stsb", "rte", "wnli"), ("sentence1", "sentence2")),
    **dict.fromkeys(("mnli", "ax"), ("premise", "hypothesis")),
    "qqp": ("question1", "question2"),
    "qnli": ("question", "sentence"),
}
PLAIN_SPLITS = ("train", "validation", "test")
SPLITS = {
    "mnli": ("train", *(f"{kind}_{m}" for kind in ("validation", "test") for m in ("matched", "mismatched"))),
    "ax": ("test",),
}


def load_dataset(name: str, config: str | None = None) -> dict[str, Any]:
    """Three rows a split (ten thousand of IMDb), labels 0, 1, … and in test splits -1."""
    if name == "nyu-mll/glue" and config is not None:
        splits = SPLITS.get(config, PLAIN_SPLITS)
        return {split: _split(split, TEXTS[config], NAMES.get(config)) for split in splits}
    if name == "stanfordnlp/imdb":
        return {split: _split("train", ("text",), ["neg", "pos"], 10_000) for split in ("train", "test")}
    if name == "stanfordnlp/snli":
        sets = {s: _split("train", ("premise", "hypothesis"), NAMES["mnli"]) for s in PLAIN_SPLITS}
        return {
            split: rows.map(lambda row, i: {"label": (0, 2, -1)[i]}, with_indices=True) for split, rows in sets.items()
        }
    if name == "allenai/scitail" and config == "tsv_format":
        return {
            split: _split("train", ("premise", "hypothesis"), ["entails", "neutral"], text_labels=True)
            for split in PLAIN_SPLITS
        }
    if name in ("rajpurkar/squad", "rajpurkar/squad_v2"):
        return {split: _squad(name.endswith("v2")) for split in ("train", "validation")}
    raise ConnectionError(f"no hub here\nand so no {name}")


def _split(
    split: str, texts: tuple[str, ...], names: list[str] | None, rows: int = 3, text_labels: bool = False
) -> Any:
    from datasets import ClassLabel, Dataset, Features, Value

    columns: dict[str, Any] = {text: [f'{text} "{i}' for i in range(rows)] for text in texts}
    columns[texts[0]][0] += "\twith a tab\r\nand a line"
    if names is None:
        columns["label"] = [-1.0 if split.startswith("test") else i + 0.8 for i in range(rows)]
        feature: Any = Value("float32")
    else:
        numbers = [-1 if split.startswith("test") else i % len(names) for i in range(rows)]
        columns["label"] = [names[i] for i in numbers] if text_labels else numbers
        feature = Value("string") if text_labels else ClassLabel(names=names)
    return Dataset.from_dict(columns, Features({**dict.fromkeys(texts, Value("string")), "label": feature}))


def _squad(version_2: bool) -> Any:
    from datasets import Dataset

    rows = [
        {
            "id": str(i),
            "title": f"title {i // 4}",
            "context": f"context {i // 2}",
            "question": f"question {i}?",
            "answers": {"text": [], "answer_start": []}
            if version_2 and i % 2
            else {"text": ["context", "con"], "answer_start": [0, 0]},
        }
        for i in range(6)
    ]
    return Dataset.from_list(rows)
