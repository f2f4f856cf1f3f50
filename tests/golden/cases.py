"""A golden case: what an original program was given, and what it answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offramp.interop.checkpoint import read_checkpoint
from offramp.interop.dialect import Model, Wishes
from offramp.interop.loading import load, translate
from offramp.recipes import Phase, Recipe, Schedule
from offramp.training import PhaseGradients
from tests.tiny import without_dropout

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
POSITIONS = ("start_positions", "end_positions")
LOGITS = {"rtol": 1e-4, "atol": 1e-4}  # float32 forward passes
LOSS = {"rtol": 1e-8, "atol": 1e-8}  # float64
AFTER_TRAINING = {"rtol": 1e-5, "atol": 1e-5}
GRADIENT = 1e-6  # relative to the largest entry
NO_GRADIENT = 1e-9  # below it, rounding: a span's bias moves all places alike
NO_CLIPPING = Schedule(clip=float("inf"))


@dataclass(frozen=True)
class GoldenCase:
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    @property
    def settings(self) -> dict[str, Any]:
        return self.manifest["settings"]

    @property
    def system(self) -> str:
        return self.settings["system"]

    @property
    def config(self) -> dict[str, Any]:
        return json.loads((self.folder / "config.json").read_text())

    def array_names(self) -> set[str]:
        return {f"{file}:{name}" for file, arrays in self.manifest["arrays"].items() for name in arrays}

    def arrays(self, file: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / file) as stored:
            return {name: stored[name] for name in stored.files}

    def load(self, double: bool = False, **options: Any) -> Model:
        """The model, without dropout: as every golden number was made."""
        model = without_dropout(load(self.folder, **options))
        return model.double() if double else model

    def batch(self, rows: slice = slice(None), labels: str | None = None) -> dict[str, Tensor]:
        """Inputs of some samples, with the named labels where asked for; `labels` of a span are its positions."""
        stored = self.arrays("inputs.npz")
        batch = {name: torch.from_numpy(stored[name][rows]) for name in INPUTS if name in stored}
        if labels == "labels" and labels not in stored:
            return batch | {name: torch.from_numpy(stored[name][rows]) for name in POSITIONS}
        if labels is not None:
            batch["labels"] = torch.from_numpy(stored[labels][rows])
        return batch

    def batches(self, labels: str = "labels") -> list[dict[str, Tensor]]:
        """The batches of the mini training run, in file order."""
        run = self.settings["train_run"]
        samples = run.get("samples", len(self.arrays("inputs.npz")[labels]))
        return [self.batch(slice(at, at + run["batch"]), labels) for at in range(0, samples, run["batch"])]

    def schedule(self) -> Schedule:
        run = self.settings["train_run"]
        return Schedule(
            learning_rate=run["lr"],
            epochs=run["epochs"],
            warmup=run.get("warmup_rate", 0.0),
            weight_decay=run.get("weight_decay", 0.0),
            clip=float(str(run["clip"]).split()[0]),
        )

    def our_names(self, model: Model) -> dict[str, str]:
        """The original's parameter name to ours."""
        translation = translate(read_checkpoint(self.folder), Wishes())
        names = {translation.source(name): name for name, _ in model.named_parameters() if name != "loss_weights"}
        return {theirs: ours for theirs, ours in names.items() if theirs is not None}


@torch.no_grad()
def exit_logits(model: Model, batch: dict[str, Tensor]) -> Tensor:
    """Every exit's logits of a batch: (E, B, C)."""
    return torch.stack(model(**batch).exit_logits)


def gradients_of(model: Model, phase: Phase, batch: dict[str, Tensor]) -> tuple[float, float, dict[str, Tensor]]:
    """Loss, norm and gradients of one step of a phase."""
    with PhaseGradients(model, phase) as gradients:
        loss = gradients.add(batch)
        norm = gradients.finish()
        return loss, norm, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def only_phase(recipe: Recipe, model: Model) -> Phase:
    recipe.prepare(model)
    (phase,) = recipe.phases(model)
    return phase


def assert_gradients(
    case: GoldenCase,
    model: Model,
    ours: dict[str, Tensor],
    stored: dict[str, np.ndarray],
    key: str,
    tolerance: float = GRADIENT,
) -> None:
    """Every stored gradient, and the norm of every parameter's gradient (NaN: there was none)."""
    names = case.our_names(model)
    checked = 0
    for name, expected in stored.items():
        if name.startswith(f"{key}/grad/"):
            actual = ours[names[name.removeprefix(f"{key}/grad/")]].numpy()
            assert np.abs(actual - expected).max() <= tolerance * max(np.abs(expected).max(), NO_GRADIENT), name
            checked += 1
    assert checked or not any("/grad/" in name and name.startswith(key) for name in stored)
    for name, norm in zip(case.settings["param_names"], stored[f"{key}/grad_norms"], strict=True):
        if np.isnan(norm):
            assert names.get(name) not in ours, f"{name} has a gradient, the original has none"
        else:
            np.testing.assert_allclose(float(ours[names[name]].norm()), norm, rtol=tolerance, atol=1e-9, err_msg=name)


def assert_trained(case: GoldenCase, model: Model, stored: dict[str, np.ndarray], key: str = "") -> None:
    """Parameters stored after a mini training run."""
    names, parameters = case.our_names(model), dict(model.named_parameters())
    for name, expected in stored.items():
        if name.startswith(f"{key}param_after/"):
            original = name.removeprefix(f"{key}param_after/")
            if original in names:
                actual = parameters[names[original]].detach().numpy()
            else:  # a part the original keeps untrained and we do not keep at all
                actual = read_checkpoint(case.folder).tensors[original].numpy()
            np.testing.assert_allclose(actual, expected, **AFTER_TRAINING, err_msg=name)
