"""Which runner a model gets: device, precision and backend as asked, or the best this machine has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

import torch

from offramp.engine import processor
from offramp.engine.grouping import Cost, measure
from offramp.engine.host_runner import HostRunner
from offramp.engine.runner import Runner
from offramp.engine.torch_layers import TorchLayers
from offramp.engine.torch_threads import torch_threads
from offramp.engine.waves import weights_of_layer
from offramp.errors import OfframpError
from offramp.models import MultiExitModel
from offramp.models.device import find_device
from offramp.models.gates import gates_see_padding
from offramp.models.skipping import Skipping
from offramp.policies import Policy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = (*DTYPES, "int8")
BACKENDS = ("torch", "onnx", "graphs")
SMALL = 250_000
"""Weights of a layer below which a call costs more than what it computes: then rows are better run in groups."""


@dataclass(frozen=True)
class Setting:
    """Where and how a model is computed, nothing left to be chosen."""

    device: torch.device
    precision: str
    backend: str
    threads: int

    def __str__(self) -> str:
        where = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return f"{where}, {self.precision}, {self.backend}"


def choose(model: MultiExitModel, device: str, precision: str, backend: str, threads: int | None) -> Setting:
    """Settle what was left open (`auto`), and refuse what does not go together, with the reason."""
    for what, value, known in (("precision", precision, PRECISIONS), ("backend", backend, BACKENDS)):
        if value not in ("auto", *known):
            raise OfframpError(f"{what} {value!r}: use auto, {', '.join(known)}")
    if threads is not None and threads < 1:
        raise OfframpError(f"threads must be 1 or more, not {threads}")
    place = find_device("cpu" if (device, precision) == ("auto", "int8") else device)
    if precision == "auto":
        precision = "bf16" if place.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if backend == "auto":
        backend = best_backend(model, place, precision)
    elif reason := why_not(model, place, precision, backend):
        raise OfframpError(f"backend {backend} cannot run this: {reason}")
    if place.type == "cpu" and precision != "fp32":
        processor.check_works("int8" if precision == "int8" else "bf16")
    return Setting(place, precision, backend, threads or torch.get_num_threads())


def best_backend(model: MultiExitModel, device: torch.device, precision: str) -> str:
    fast = "graphs" if device.type == "cuda" else "onnx"
    if (reason := why_not(model, device, precision, fast)) is None:
        small = weights_of_layer(model) < SMALL
        return "torch" if fast == "onnx" and precision == "fp32" and small else fast
    if neither := why_not(model, device, precision, "torch"):
        raise OfframpError(f"{precision} cannot be had here: {reason if precision == 'int8' else neither}")
    return "torch"


def why_not(model: MultiExitModel, device: torch.device, precision: str, backend: str) -> str | None:
    """Why a backend cannot run a model; None where it can."""
    if backend == "onnx":
        return why_not_onnx(model, device, precision)
    if precision == "int8":
        return "int8 needs backend onnx"
    if precision == "fp16" and device.type == "cpu":
        return "fp16 is for GPUs: use fp32, int8 or bf16"
    if backend == "graphs":
        if device.type != "cuda":
            return "it needs a CUDA device"
        from offramp.engine import graphs

        return graphs.why_not(model, device)
    return None


def why_not_onnx(model: MultiExitModel, device: torch.device, precision: str) -> str | None:
    if device.type != "cpu":
        return "it runs on the CPU (device='cpu')"
    if precision not in ("fp32", "int8"):
        return f"it knows fp32 and int8, not {precision}"
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        return f"it needs {missing[0]}: pip install 'offramp[onnx]'"
    from offramp.engine.onnx import segments

    reason = segments.why_not(model)
    return reason and f"{reason}, which ONNX graphs do not hold"


def make_runner(model: MultiExitModel, policy: Policy, setting: Setting, *, record: bool = False) -> Runner:
    """The runner for a setting."""
    if setting.backend == "graphs":
        from offramp.engine.graphs import GraphRunner

        return GraphRunner(model, policy, device=setting.device, dtype=DTYPES[setting.precision], record=record)
    if setting.backend == "onnx":
        from offramp.engine.onnx.onnx_layers import OnnxLayers
        from offramp.engine.onnx.whole_rows import OnnxRunner

        return OnnxRunner(model, policy, OnnxLayers(model, setting.precision == "int8", setting.threads), record=record)
    layers = layers_in_torch(model, setting)
    return HostRunner(layers.model, policy, layers, record=record)


def layers_in_torch(model: MultiExitModel, setting: Setting) -> TorchLayers:
    """Layers in plain torch, whatever backend the setting names."""
    ready = prepared(model, setting)
    # In bf16 on a CPU a product's last bits depend on how many rows it has, and its last bits are large.
    alone = (setting.precision == "bf16" and setting.device.type == "cpu") or gates_see_padding(ready.gates)
    if alone:
        return TorchLayers(ready, None)
    with torch_at_work(setting):
        return TorchLayers(ready, layer_cost(ready))


@contextmanager
def torch_at_work(setting: Setting) -> Iterator[None]:
    """torch on the setting's threads, in its precision and, in fp32 on a CPU, without oneDNN; afterwards as it was.

    oneDNN keeps what it made for each of the last thousand shapes, and batches of texts have no end of shapes: that
    came to hundreds of MB. Without it, a layer takes as long.
    """
    uses_onednn = torch.backends.mkldnn.enabled
    try:
        if setting.device.type == "cpu" and setting.precision == "fp32":
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        with torch_threads(setting.threads), torch.autocast(setting.device.type, enabled=False):
            yield
    finally:
        torch.backends.mkldnn.enabled = uses_onednn


def prepared(model: MultiExitModel, setting: Setting) -> MultiExitModel:
    """The model on its device and in its precision: itself where it is so already, else a copy."""
    dtype = DTYPES[setting.precision]
    if model.device != setting.device or model.dtype != dtype or model.training:
        model = copy.deepcopy(model).eval()
        model = model.to(device=setting.device, dtype=dtype)  # type: ignore[call-arg]
    if model.gates is not None and model.skipping is None and setting.device.type == "cpu":
        model.skipping = Skipping(model)  # the same answers, without what the gates switch off
    return model


@torch.no_grad()
def layer_cost(model: MultiExitModel) -> Cost:
    """Seconds of one layer, by rows and tokens, measured on the spot: on as many threads as it will have."""
    most = model.backbone.max_length

    def layer(rows: int, tokens: int) -> None:
        hidden = torch.zeros(rows, min(tokens, most), model.backbone.hidden_size, dtype=model.dtype).to(model.device)
        marks = torch.ones(hidden.shape[:2], dtype=torch.long, device=model.device)
        model.layer(0, hidden, model.backbone.mask(marks, hidden), marks)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)

    return measure(layer)
