"""How well every exit guesses masked words of text that was held out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.errors import OfframpError
from offramp.training.phase_run import process_state
from offramp.training.pretraining.model import LOSSES, PretrainingModel, rows_asked
from offramp.training.pretraining.rows import Layout, Rows, RowSource, Words

MOST_ROWS = 4096
"""So many held-out rows are scored at most."""
AT_ONCE = 128
MASK_RATE = 0.15
"""Whatever the mask rate of training: losses at different rates cannot be compared."""


def held_out_rows(tokens: NDArray[np.integer], words: Words, length: int, order: bool) -> Rows | None:
    """Always the same rows and masks; None where no text is held out."""
    if not len(tokens):
        return None
    try:
        return RowSource(tokens, words, Layout(length, 1, MASK_RATE, order), seed=0).fixed(MOST_ROWS)
    except OfframpError as error:
        raise OfframpError(
            f"{len(tokens):,} tokens are held out, too few to be scored in rows of {length}: give more text, hold more "
            "of it out, or none (--held-out)"
        ) from error


@torch.no_grad()
def held_out_losses(model: PretrainingModel, rows: Rows) -> dict[str, Any]:
    """Each kind of loss of every exit, that of the masked words first."""
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
