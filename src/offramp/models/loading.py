"""Opening a saved model: the mistakes that happen, each with a message that names the file and the fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from offramp.errors import OfframpError


def checked_from_pretrained(from_pretrained: Callable[..., Any], name: Any, *args: Any, **kwargs: Any) -> Any:
    """Hugging Face's `from_pretrained`, with one-line errors and a look at the weights it read."""
    try:
        loaded = from_pretrained(name, *args, **kwargs)
    except SafetensorError as error:
        raise OfframpError(f"{name}: the weights are damaged ({error}); copy the model again") from error
    except RuntimeError as error:
        raise OfframpError(f"{name}: the weights do not fit config.json ({_gist(error)})") from error
    except OSError as error:
        raise OfframpError(f"{name}: {_gist(error)}") from error
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    refuse_nan(model, name)
    align(model)
    return loaded


def refuse_nan(model: nn.Module, where: str | Path) -> None:
    """A weight that is not a number makes every answer meaningless: say which one, and where it came from."""
    for name, parameter in model.named_parameters():
        if parameter.device.type == "meta" or bool(torch.isfinite(parameter.detach().sum())):
            continue  # a sum is finite only if every term is, and is much cheaper than a look at each
        if not bool(torch.isfinite(parameter).all()):
            raise OfframpError(f"{where}: weight {name} holds NaN or infinity; the training that wrote it diverged")


@torch.no_grad()
def align(model: nn.Module) -> None:
    """Move weights that lie unaligned in a mapped file: products are slower there, and can differ in the last bit."""
    for parameter in model.parameters():
        if parameter.device.type == "cpu" and parameter.data_ptr() % 64:
            parameter.data = parameter.data.clone()


def _gist(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
