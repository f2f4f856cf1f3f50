"""`offramp export`: a model and its policy as ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from offramp.cli.app import app
from offramp.cli.own_policy import say_own_policy

EXAMPLES = """
Examples:

  offramp export runs/sst2 exported --policy 'entropy(0.1)'

  offramp export runs/sst2 exported-int8 --precision int8 --policy 'patience(3)'
"""


@app.command("export", epilog=EXAMPLES)
def export_command(
    model: Annotated[str, typer.Argument(help="Model folder.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write.")],
    precision: Annotated[str, typer.Option(help="fp32, or int8 for the products of the layers.")] = "fp32",
    policy: Annotated[
        str | None, typer.Option(help="When to leave; default: the model's own, or else full depth.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Cut texts to so many tokens; default: as trained.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an exported folder.")] = False,
) -> None:
    """Write embeddings, layers and exits as ONNX files, with policy and tokenizer, for other runtimes."""
    from offramp.engine.coverage import RunAs, cut_to
    from offramp.exported_folder import export as export_model
    from offramp.exported_folder import why_not_by_the_loop
    from offramp.interop import load
    from offramp.policies import policy_from_json

    opened = load(model)
    if policy is None:
        say_own_policy(opened, RunAs(precision, cut_to(opened, max_length)))
    manifest = export_model(
        opened, folder, precision=precision, policy=policy, max_length=max_length, overwrite=overwrite
    )
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    typer.echo(
        f"{folder}: {len(manifest['layers'])} layers, {len(manifest['exits'])} exits, {manifest['task']}, {precision}, "
        f"{size:.1f} MB; leaves by {policy_from_json(manifest['policy'])}"
    )
    if reason := why_not_by_the_loop(manifest):
        typer.echo(f"examples/onnx_loop.py cannot run it as it is: {reason}", err=True)
