"""Opening a saved model: the mistakes that happen, each with a message that names the file and the fix."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from offramp.errors import OfframpError, one_line
from offramp.shipped import resolve


def checked_from_pretrained(from_pretrained: Callable[..., Any], name: Any, *args: Any, **kwargs: Any) -> Any:
    """Hugging Face's `from_pretrained`, with one-line errors and a look at the weights it read.

    Without a wish for another precision (`dtype`), half is opened in single, as by `offramp.load`.
    """
    name = resolve(name) if isinstance(name, str | Path) else name
    as_wished = kwargs.get("dtype", kwargs.get("torch_dtype")) is not None
    wants_report = kwargs.pop("output_loading_info", False)
    may_differ = kwargs.pop("ignore_mismatched_sizes", False)
    try:
        model, report = from_pretrained(
            name, *args, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )  # those that differ are refused below: transformers would not say which in one line
    except torch.OutOfMemoryError:
        raise
    except SafetensorError as error:
        raise OfframpError(f"{damaged_file(name)} is damaged ({one_line(error)}); copy the model again") from error
    except RuntimeError as error:
        raise OfframpError(f"{name}: the weights do not fit config.json ({one_line(error)})") from error
    except OSError as error:
        raise OfframpError(f"{name}: {one_line(error)}") from error
    if report["mismatched_keys"] and not may_differ:
        refuse_shapes(model, name, report["mismatched_keys"])
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])[0]
        raise OfframpError(f"{name}: weight {missing} is missing, which config.json calls for")
    if not as_wished:
        model.to(torch.promote_types(model.dtype, torch.float32))
    refuse_nan(model, name)
    align(model)
    return (model, report) if wants_report else model


def damaged_file(folder: Any) -> Any:
    """The file of a folder that cannot be opened; the folder where that is not to be told."""
    for path in sorted(Path(folder).glob("*.safetensors")):
        try:
            with safe_open(path, "pt"):
                continue
        except SafetensorError:
            return path
    return folder


def refuse_shapes(model: nn.Module, where: Any, found: Collection[tuple[str, Any, Any]]) -> None:
    """Say which weight has another shape than the model's: the first, as many follow from it."""
    shapes = {name: (tuple(saved), tuple(called_for)) for name, saved, called_for in found}
    first = next((name for name in model.state_dict() if name in shapes), min(shapes))
    saved, called_for = shapes[first]
    raise OfframpError(f"{where}: weight {first} has shape {saved}, but config.json calls for {called_for}")


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
