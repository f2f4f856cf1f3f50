"""What a command says of the policy that it found in a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from offramp.models import MultiExitModel


def say_own_policy(model: MultiExitModel) -> None:
    """One line on the error output: the promise that comes with the folder's policy, or that it holds no more."""
    from offramp.engine.policy_choice import POLICY, folder_policy
    from offramp.models.weights_digest import weights_digest

    folder = Path(model.name_or_path or "")
    own = folder_policy(folder) if model.name_or_path else None
    if own is None:
        return
    certificate = _certificate(folder / POLICY)
    if not certificate:
        typer.echo(f"under {own[0]}, as {folder / POLICY} says: a policy without a promise", err=True)
    elif certificate.get("model") != weights_digest(model):
        typer.echo(
            f"under {own[0]}, but {folder / POLICY} was calibrated for other weights and promises nothing of these: "
            f"run offramp calibrate {folder}",
            err=True,
        )
    else:
        typer.echo(f"under {own[0]}: {certificate['promise'].get('text')}", err=True)


def _certificate(path: Path) -> dict[str, Any]:
    """As it is written: to read it as `offramp.calibration` does takes longer than an answer."""
    certificate = json.loads(path.read_text(encoding="utf-8")).get("certificate")
    return certificate if isinstance(certificate, dict) and isinstance(certificate.get("promise"), dict) else {}
