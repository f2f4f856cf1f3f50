"""How well every exit guesses masked words of text that was held out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.training.phase_run import process_state
from offramp.training.pretraining.model import LOSSES, PretrainingModel, rows_asked
from offramp.training.pretraining.rows import Layout, Rows, RowSource, Words

MOST_ROWS = 4096
"""So many held-out rows are scored at most."""
AT_ONCE = 128
MASK_RATE = 0.15
"""Whatever the mask rate of training: losses at different rates cannot be compared."""


@torch.no_grad()
def held_out_losses(
    model: PretrainingModel, tokens: NDArray[np.integer], words: Words, length: int, order: bool
) -> dict[str, Any]:
    """Each kind of loss of every exit, that of the masked words first; always the same rows and masks."""
    rows = RowSource(tokens, words, Layout(length, 1, MASK_RATE, order), seed=0).fixed(MOST_ROWS)
    device = process_state().device
    exits = range(model.backbone.depth)
    was_training = model.training
    model.eval()
    sums = torch.zeros(len(exits), len(LOSSES), device=device, dtype=torch.float64)
    count = len(rows.ids)
    parts = math.ceil(count / AT_ONCE)
    asked = rows_asked(rows)
    with torch.compiler.set_stance("force_eager"):  # other sizes than the step's: not worth compiling
        for part in range(parts):
            some = rows.part(part, parts).to(device)
            share = len(some.ids) / count
            losses = model(some, exits, None if asked is None else (asked * share).to(device))
            sums += losses * share
    model.train(was_training)
    columns = dict(zip(LOSSES, sums.T.tolist(), strict=True))
    return {"rows": count} | {kind: [round(loss, 5) for loss in columns[kind]] for kind in model.kinds_of(Rows)}
