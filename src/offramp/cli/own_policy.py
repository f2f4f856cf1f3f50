"""What a command says of the policy that it found in a model's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from offramp.shipped import is_in_the_box

if TYPE_CHECKING:
    from offramp.engine.coverage import NotCovered, RunAs
    from offramp.models import MultiExitModel


def say_own_policy(model: MultiExitModel, *runs: RunAs) -> None:
    """One line on the error output: the promise that comes with the folder's policy, or of which runs it says nothing.

    The policy is used in any case.
    """
    from offramp.engine.coverage import not_covered
    from offramp.engine.policy_choice import POLICY, folder_policy
    from offramp.models.weights_digest import weights_digest

    folder = Path(model.name_or_path or "")
    own = folder_policy(folder) if model.name_or_path else None
    if own is None:
        if model.stored_policy is not None:
            typer.echo(f"under {model.stored_policy}, the setting stored in {folder}: not certified", err=True)
        return
    certificate = _certificate(folder / POLICY)
    if not certificate:
        typer.echo(f"under {own[0]}, as {folder / POLICY} says: not certified", err=True)
    elif certificate.get("model") != weights_digest(model):
        typer.echo(
            f"under {own[0]}, but {folder / POLICY} was calibrated for other weights and promises nothing of these: "
            f"run offramp calibrate {folder}",
            err=True,
        )
    else:
        others = [other for run in runs if (other := not_covered(_data(certificate), run)) is not None]
        typer.echo(f"under {own[0]}: {_of_these(others, certificate['promise'].get('text'), runs, folder)}", err=True)


def _of_these(others: list[NotCovered], promise: Any, runs: tuple[RunAs, ...], folder: Path) -> str:
    """What is promised of some runs, of which `others` are none that the promise was made for."""
    if not others:
        return str(promise)
    first = others[0]
    if len(others) < len(runs):
        return f"{promise}, {first.then}; nothing is promised {first.now}"
    certify = f"; to certify it: offramp calibrate {folder} {first.now.options}"
    return f"{first}{'' if is_in_the_box(folder) else certify}"


def _certificate(path: Path) -> dict[str, Any]:
    """As it is written: to read it as `offramp.calibration` does takes longer than an answer."""
    certificate = json.loads(path.read_text(encoding="utf-8")).get("certificate")
    return certificate if isinstance(certificate, dict) and isinstance(certificate.get("promise"), dict) else {}


def _data(certificate: dict[str, Any]) -> dict[str, Any]:
    data = certificate.get("data")
    return data if isinstance(data, dict) else {}
