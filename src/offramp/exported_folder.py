"""`offramp.export`: a model and its policy as a folder of ONNX files, to be run one after another by any runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from offramp import __version__
from offramp.engine.engine import names_of_labels
from offramp.engine.onnx.graph import OPSET, Graph
from offramp.engine.onnx.portable import PortableSegments
from offramp.engine.onnx.segments import why_not
from offramp.engine.policy_choice import policy_for
from offramp.errors import OfframpError, needs
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.policies import Policy, policy_from_json
from offramp.tasks.encoding import TextEncoder, text_encoder
from offramp.tasks.squad import WindowEncoder, window_encoder
from offramp.whole_folder import check_destination, whole_folder

MANIFEST = "segments.json"
TOKENIZER = "tokenizer.json"
EMBED = "embed.onnx"
PRECISIONS = ("fp32", "int8")
FORMAT = 1
"""Of the manifest: raised when a loop written for it would no longer run the folder."""
LOOP_RULES = ("entropy", "confidence", "patience", "fixed")
"""What `examples/onnx_loop.py` knows."""


def export(
    model: MultiExitModel | str | Path,
    folder: str | Path,
    *,
    precision: str = "fp32",
    policy: Policy | str | None = None,
    max_length: int | None = None,
    tokenizer: Any = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the embeddings, each layer and each exit as ONNX files, with the policy and the tokenizer; the manifest.

    The files use standard operators only. The folder appears whole or not at all.

    Args:
        model: a model, or what `offramp.load` opens.
        folder: where to; an exported folder that is there already is replaced only with `overwrite`.
        precision: `fp32`, or `int8` for the products of the layers.
        policy: when to leave; default: the one in the model's folder or, where there is none, full depth.
        max_length: cut texts to so many tokens; default: as in training.
        tokenizer: default: the one in the model's folder.

    >>> offramp.export("runs/sst2", "exported", policy="entropy(0.1)")["layers"][:2]
    ['layer_01.onnx', 'layer_02.onnx']
    """
    destination = Path(folder)
    check_destination(destination, overwrite, sign=MANIFEST, kind="an exported folder")
    if precision not in PRECISIONS:
        raise OfframpError(f"precision {precision!r}: what is exported is {' or '.join(PRECISIONS)}")
    needs("onnx", "onnx")
    opened = model if isinstance(model, MultiExitModel) else load(model)
    refuse_what_graphs_cannot_hold(opened)
    make_encoder = window_encoder if opened.objective.name == "span" else text_encoder
    encoder: TextEncoder | WindowEncoder = make_encoder(opened, max_length, tokenizer=tokenizer)
    manifest = describe(opened, precision, policy_for(opened, policy), encoder.max_length)
    with whole_folder(destination) as new:
        for name, graph in graphs(opened, manifest).items():
            write_graph(new / name, graph())
        write_tokenizer(encoder.tokenizer, new, encoder.max_length)
        (new / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (new / "README.md").write_text(readme(destination.resolve().name, manifest), encoding="utf-8")
    return manifest


def refuse_what_graphs_cannot_hold(model: MultiExitModel) -> None:
    if reason := why_not(model):
        where = model.name_or_path or "the model"
        raise OfframpError(f"{where} cannot be exported: {reason}; offramp predict runs it (backend torch)")


def describe(model: MultiExitModel, precision: str, policy: Policy, max_length: int) -> dict[str, Any]:
    """The manifest: all that a loop has to know. What computes the same shares a file."""
    exits: Any = model.exits
    modules = [id(model.backbone.layer_module(index)) for index in range(model.backbone.depth)]
    nobody = (0,) * len(exits)
    pooling = nobody if exits.each_token else exits.pooling_of
    heads = list(zip(exits.pooler_of or nobody, exits.classifier_of, pooling, strict=True))
    return {
        "format": FORMAT,
        "offramp": __version__,
        "precision": precision,
        "task": model.objective.name,
        "labels": names_of_labels(model, None),
        "max_length": max_length,
        "token_types": model.backbone.config.type_vocab_size > 1,
        "policy": policy.to_json(),
        "embed": EMBED,
        "layers": file_names("layer", modules),
        "exits": [
            {"layer": layer, "file": file, "asked": exit == len(exits) - 1 or policy.asks(exit, exits.layers)}
            for exit, (layer, file) in enumerate(zip(exits.layers, file_names("exit", heads), strict=True))
        ],
    }


def file_names(kind: str, contents: Sequence[Hashable]) -> list[str]:
    """The file of each, numbered from 1; where several are the same, that of the first of them."""
    return [f"{kind}_{contents.index(content) + 1:02}.onnx" for content in contents]


def graphs(model: MultiExitModel, manifest: dict[str, Any]) -> dict[str, Callable[[], bytes]]:
    """What makes each file: a large model is not held in memory twice."""
    segments = PortableSegments(model, int8=manifest["precision"] == "int8")
    found: dict[str, Callable[[], bytes]] = {EMBED: lambda: segments.embed(Graph())}
    found |= {name: partial(segments.layer, index) for index, name in enumerate(manifest["layers"])}
    return found | {each["file"]: partial(segments.exit, exit) for exit, each in enumerate(manifest["exits"])}


def write_graph(path: Path, graph: bytes) -> None:
    needs("onnx", "onnx").checker.check_model(graph, full_check=True)
    path.write_bytes(graph)


def write_tokenizer(tokenizer: Any, folder: Path, max_length: int) -> None:
    """The tokenizer's files; tokenizer.json cuts texts by itself, as the model was trained, and pads nothing."""
    tokenizer.save_pretrained(folder)
    path = folder / TOKENIZER
    if not path.is_file():
        raise OfframpError(f"the model's tokenizer cannot be written as {TOKENIZER}: give a fast one (tokenizer=)")
    alone = Tokenizer.from_file(str(path))
    alone.enable_truncation(max_length)
    alone.no_padding()
    alone.save(str(path))


README = """# {name}

A {task} model with {exits} exits over {layers} layers, written by `offramp export` in {precision}: ONNX files to be run
one after another, until the policy lets a text go.

| file | takes | gives |
|---|---|---|
| `embed.onnx` | `input_ids`{types} (B, T) | `hidden` (B, T, H) |
| `layer_*.onnx` | `hidden`, `attention_mask` (B, T) | `after` (B, T, H), the next layer's `hidden` |
| `exit_*.onnx` | `hidden`, `attention_mask` (B, T) | `logits` {logits} |
| `segments.json` | | the files in their order, the exits' layers, the labels, the policy |
| `tokenizer.json` | a text | its tokens; {length} at most |

Ids and masks are int64; the operators are ONNX's own (opset {opset}). `layers` in `segments.json` names the file of
every layer, first to last: layers that share their weights share a file. After layer n, run the exits whose `layer` is
n and which are `asked`, and leave by the policy `{policy}`; the last exit takes everybody.

{alone}A loop of 40 lines in onnxruntime and numpy is `examples/onnx_loop.py` of offramp, explained in
`docs/how-to/export.md`{but}:

```
python onnx_loop.py {name} "a text"
```
"""

ALONE = """In int8 run one text at a time: one scale holds for all that a product is fed, and company changes answers.

"""


def readme(name: str, manifest: dict[str, Any]) -> str:
    """How to run the folder, for whoever finds it."""
    spans = manifest["task"] == "span"
    return README.format(
        name=name,
        opset=OPSET,
        task=manifest["task"],
        exits=len(manifest["exits"]),
        layers=len(manifest["layers"]),
        precision=manifest["precision"],
        types=", `token_type_ids`" if manifest["token_types"] else "",
        logits="(B, T, 2): starts and ends" if spans else f"(B, {len(manifest['labels']) or 1})",
        length=manifest["max_length"],
        policy=policy_from_json(manifest["policy"]),
        alone=ALONE if manifest["precision"] == "int8" else "",
        but=f"; {reason}" if (reason := why_not_by_the_loop(manifest)) else "",
    )


def why_not_by_the_loop(manifest: dict[str, Any]) -> str | None:
    """What `examples/onnx_loop.py` lacks to run the folder."""
    rule = manifest["policy"]["policy"]
    if rule in LOOP_RULES:
        return None
    return f"it knows {', '.join(LOOP_RULES[:-1])} and {LOOP_RULES[-1]}, and has to be taught `{rule}`"
