"""`offramp doctor`: what this machine offers, what offramp will use, and what would help."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from offramp.cli.app import app

if TYPE_CHECKING:
    from offramp.doctor import Examination, Finding

EXAMPLES = """
Examples:

  offramp doctor

  offramp doctor --json
"""
STYLES = {"fine": "", "could be better": "yellow", "broken": "bold red", "unknown": "dim"}


@app.command("doctor", epilog=EXAMPLES)
def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, on one line.")] = False,
) -> None:
    """Say what this machine offers, what offramp will use of it, and what would help.

    The exit status is 0 unless something is broken. The first time takes longer: what the processor can do is tried in
    other processes, and remembered.
    """
    from offramp.doctor import examine

    with Console(stderr=True).status("") as status:
        found = examine(lambda name: status.update(f"{name} …"))
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _show(found)
    raise typer.Exit(1 if found.broken else 0)


def _show(found: Examination) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(one.name) for one in found.findings)
    for part, findings in groupby(found.findings, key=lambda one: one.part):
        console.print(f"[bold]{part[0].upper()}{part[1:]}[/bold]")
        for one in findings:
            console.print(f"  {escape(one.name):<{width}}  {escape(one.value)}", style=STYLES[one.state])
    _advise(console, "Broken", found.broken)
    _advise(console, "What would help", found.would_help)
    if not found.broken and not found.would_help:
        console.print("[bold green]Nothing is broken, and nothing is missing.[/bold green]")


def _advise(console: Console, title: str, findings: list[Finding]) -> None:
    if findings:
        console.print(f"[bold]{title}[/bold]")
    for one in findings:
        console.print(f"  {escape(one.name)}: {escape(one.advice)}")
