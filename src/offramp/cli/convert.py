"""`offramp convert`: write any checkpoint we can open as an offramp folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.app import app

EXAMPLES = """
Examples:

  offramp convert fnlp/elasticbert-base models/elasticbert

  offramp convert fnlp/elasticbert-base models/six-layers --layers 6

  offramp convert saved_models/bert/MRPC/two_stage models/deebert-mrpc

  offramp convert albert_large/model.ckpt-best models/albert-large
"""


@app.command(epilog=EXAMPLES)
def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="Folder or hub name: a Hugging Face BERT, RoBERTa, ALBERT or ElasticBERT, a checkpoint of the "
            "original DeeBERT, RomeBERT, ElasticBERT, ELBERT or EBERT, Google's TF ALBERT, or an offramp folder."
        ),
    ],
    destination: Annotated[Path, typer.Argument(help="Folder to write.")],
    layers: Annotated[int | None, typer.Option(help="Keep only the first so many layers.")] = None,
    last_exit: Annotated[bool, typer.Option("--last-exit-only", help="Keep only the last layer's exit.")] = False,
    num_labels: Annotated[int | None, typer.Option(help="Labels of exits that are new; 1 is regression.")] = None,
    span: Annotated[bool, typer.Option("--span", help="New exits answer with spans (question answering).")] = False,
    legacy_last_exit: Annotated[
        bool,
        typer.Option("--legacy-last-exit", help="Keep DeeBERT's untrained last highway, as the original program does."),
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")] = False,
) -> None:
    """Write a checkpoint as an offramp folder: config.json, model.safetensors and the tokenizer."""
    from offramp.interop import convert as convert_checkpoint

    model = convert_checkpoint(
        source,
        destination,
        overwrite=overwrite,
        layers=layers,
        exits="last" if last_exit else None,
        num_labels=num_labels,
        span=span,
        legacy_last_exit=legacy_last_exit,
        revision=revision,
    )
    family = model.config.backbone_config.model_type
    typer.echo(
        f"{destination}: {family}, {model.backbone.depth} layers, exits after {_runs(model.exits.layers)}, "
        f"{model.objective.name}, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters"
    )
    if model.stored_policy is not None:
        typer.echo(f"policy: {model.stored_policy}, as the original's settings say; it is not certified")


def _runs(layers: tuple[int, ...]) -> str:
    """`1-12` rather than twelve numbers, where they follow each other."""
    if len(layers) > 2 and list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"{layers[0]}-{layers[-1]}"
    return ", ".join(map(str, layers))
