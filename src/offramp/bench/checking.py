"""Nothing is timed before its answers are right."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.bench.contestants import Contestant, Numbered, Offramp
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.policies import Fixed, Scripted
from offramp.policies.base import first_exit
from offramp.tasks.encoding import pad_rows

FAR = {"fp32": 1e-3, "fp16": 0.02, "bf16": 0.1, "int8": 0.2}
"""How far logits may be from those of the reference in fp32, as a share of the largest."""


def check_answers(model: MultiExitModel, contestants: Sequence[Contestant], rows: Numbered) -> dict[str, str]:
    """Every contestant's answers to a few rows against the reference: each row alone, in fp32, layer by layer.

    In lower precision a row near the threshold may leave elsewhere; its logits must be those of where it left. A rival
    in lower precision may be as far off as it is: that is said, by its name.
    """
    notes = {}
    traces = reference(model, rows)
    largest = max(float(np.abs(trace).max()) for trace in traces.values())
    for contestant in contestants:
        said = contestant.answers(contestant.prepare(rows))
        for number, trace in traces.items():
            _check_exit(model, contestant, number, trace, said[number].exit)
            expected, found = trace[said[number].exit], said[number].logits
            same_shape = found.shape == expected.shape
            off = float(np.abs(found - expected).max()) / largest if same_shape else np.inf
            if off <= FAR[contestant.precision]:
                continue
            if same_shape and contestant.precision != "fp32" and not isinstance(contestant, Offramp):
                notes[contestant.name] = f"its logits are up to {off:.0%} off those of fp32"
            else:
                raise OfframpError(
                    f"{contestant.name} answers row {number} with {_shown(found)}, the reference with "
                    f"{_shown(expected)}: nothing was timed; please report this"
                )
    return notes


def _check_exit(
    model: MultiExitModel, contestant: Contestant, number: int, trace: NDArray[np.float32], exit: int
) -> None:
    """Rows leave where the reference's do, if the precision is the same or the policy does not look at answers."""
    if not isinstance(contestant, Offramp):
        return
    policy = contestant.policy
    if contestant.precision != "fp32" and not isinstance(policy, Fixed | Scripted):
        return
    logits = torch.from_numpy(trace).unsqueeze(1)  # (E, 1, …)
    layers, task = model.exits.layers, model.objective.name
    expected = int(first_exit(policy, logits, layers, task, torch.tensor([number])))
    if exit != expected:
        raise OfframpError(
            f"{contestant.name}: row {number} left by exit {exit + 1}, and by exit {expected + 1} in the reference: "
            "nothing was timed; please report this"
        )


@torch.no_grad()
def reference(model: MultiExitModel, rows: Numbered) -> dict[int, NDArray[np.float32]]:
    """What every exit says to each row alone, in fp32 on the CPU: (E, C), or (E, T, 2)."""
    plain = model
    if model.device.type != "cpu" or model.dtype != torch.float32 or model.training:
        plain = copy.deepcopy(model).float().cpu().eval()
    pad_id = int(model.backbone.config.pad_token_id or 0)
    traces = {}
    for number, row in rows:
        batch: dict[str, Any] = pad_rows([row], pad_id)
        traces[number] = torch.stack(plain.run(**batch).logits)[:, 0].numpy()
    return traces


def _shown(logits: NDArray[np.float32]) -> str:
    return str(np.round(logits.ravel()[:4], 4).tolist())
