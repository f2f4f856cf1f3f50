"""Going on with a run that was stopped."""

from __future__ import annotations

import typer

from offramp.errors import OfframpError


def refuse_new_settings(context: typer.Context, may_differ: set[str]) -> None:
    """A run goes on with the settings it was begun with; a new one beside --resume would be lost in silence."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in may_differ | {"out", "resume", "quiet"} and source is not None and source.name == "COMMANDLINE":
            raise OfframpError(
                f"--resume goes on with the settings of the run: leave out --{name.strip('_').replace('_', '-')}"
            )
