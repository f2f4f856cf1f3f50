"""Training and answering: a model without dropout for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """Every part of the model as it answers: dropout would make answers, and exits, a matter of chance.

    Afterwards what was being trained is so again, and what stood still while the rest was trained is not.
    """
    trained = [module for module in model.modules() if module.training]
    for module in trained:
        module.training = False
    try:
        yield
    finally:
        for module in trained:
            module.training = True
