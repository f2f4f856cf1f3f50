"""What a user could run instead, at full depth: plain transformers, ONNX Runtime, and what else is installed."""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offramp.bench.contestants import Contestant, Numbered, Said
from offramp.bench.plain_model import plain_model
from offramp.engine.backends import DTYPES, Setting
from offramp.errors import needs
from offramp.models import MultiExitModel
from offramp.tasks.encoding import pad_rows

OPSET = 17
STREAM_BATCH, STREAM_BATCH_CUDA = 32, 512
"""Rows that rivals take at a time when all rows are there."""


class Padded(Contestant):
    """Takes batches padded to their longest row."""

    def __init__(self, name: str, precision: str, model: MultiExitModel, sorts: bool, stream_batch: int) -> None:
        self.sorts = sorts
        self.name = f"{name} {precision}"
        self.precision = precision
        self.spans = model.objective.name == "span"
        self.pad_id = int(model.backbone.config.pad_token_id or 0)
        self.stream_batch = stream_batch

    def prepare(self, rows: Numbered) -> tuple[Numbered, Any]:
        return rows, self.inputs(pad_rows([row for _, row in rows], self.pad_id))

    def inputs(self, batch: dict[str, Tensor]) -> Any:
        return {name: tensor.numpy() for name, tensor in batch.items()}

    def stream(self, rows: Numbered) -> list[Any]:
        return self.batches(rows, self.stream_batch)

    @abstractmethod
    def run(self, work: Any) -> NDArray[np.float32]:
        """Logits (B, C) or (B, T, 2) on the host."""

    def answers(self, work: Any) -> dict[int, Said]:
        logits = self.run(work)
        cut = [given[: len(row)] if self.spans else given for given, (_, row) in zip(logits, work[0], strict=True)]
        return {ticket: Said(given, -1) for given, (ticket, _) in zip(cut, work[0], strict=True)}


class Transformers(Padded):
    """Hugging Face's own classes, in torch."""

    def __init__(self, model: MultiExitModel, setting: Setting, sorts: bool) -> None:
        precision = "fp32" if setting.precision == "int8" else setting.precision
        together = STREAM_BATCH_CUDA if setting.device.type == "cuda" else STREAM_BATCH
        super().__init__("transformers", precision, model, sorts, together)
        self.only_in_batches = sorts
        self.name += ", sorted" if sorts else ""
        self.device = setting.device
        self.module = plain_model(model).to(device=setting.device, dtype=DTYPES[precision])

    def inputs(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return batch

    @torch.inference_mode()
    def run(self, work: Any) -> NDArray[np.float32]:
        inputs = {name: tensor.to(self.device) for name, tensor in work[1].items()}
        logits: NDArray[np.float32] = self.module(**inputs).float().cpu().numpy()
        return logits


class OnnxRuntime(Padded):
    """A model that was exported from Hugging Face's class, in a session with ONNX Runtime's own defaults."""

    def __init__(self, model: MultiExitModel, path: Path, precision: str, threads: int) -> None:
        super().__init__("ONNX Runtime", precision, model, sorts=True, stream_batch=STREAM_BATCH)
        runtime = needs("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        self.session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.takes = {one.name for one in self.session.get_inputs()}

    def inputs(self, batch: dict[str, Tensor]) -> Any:
        return {name: tensor.numpy() for name, tensor in batch.items() if name in self.takes}

    def run(self, work: Any) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self.session.run(None, work[1])[0]
        return logits


class OpenVino(Padded):
    """The exported model in OpenVINO."""

    def __init__(self, model: MultiExitModel, path: Path, threads: int) -> None:
        super().__init__("OpenVINO", "fp32", model, sorts=True, stream_batch=STREAM_BATCH)
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        self.compiled = import_module("openvino").Core().compile_model(str(path), "CPU", settings)

    def run(self, work: Any) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self.compiled(work[1])[0]
        return logits


def make_rivals(model: MultiExitModel, setting: Setting) -> tuple[list[Contestant], dict[str, str]]:
    """Everything that can answer here, and by name what cannot, and why."""
    if model.gates is not None:
        return [], {"rivals": "none of them knows gates"}
    rivals: list[Contestant] = [Transformers(model, setting, sorts) for sorts in (False, True)]
    if setting.device.type != "cpu":
        return rivals, {"ONNX Runtime": "compared on the CPU", "OpenVINO": "compared on the CPU"}
    skipped = {
        name: f"{missing[0]} is not installed"
        for name, modules in {"ONNX Runtime": ("onnx", "onnxruntime"), "OpenVINO": ("onnx", "openvino")}.items()
        if (missing := [module for module in modules if find_spec(module) is None])
    }
    with tempfile.TemporaryDirectory() as scratch:
        path = export(model, Path(scratch)) if len(skipped) < 2 else Path(scratch)
        if "ONNX Runtime" not in skipped:
            rivals.append(OnnxRuntime(model, path, "fp32", setting.threads))
            rivals.append(OnnxRuntime(model, quantised(path), "int8", setting.threads))
        if "OpenVINO" not in skipped:
            rivals.append(OpenVino(model, path, setting.threads))
    return rivals, skipped


class _ByPosition(nn.Module):
    """The exporter gives inputs by position."""

    def __init__(self, module: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.module = module
        self.names = names

    def forward(self, *inputs: Tensor) -> Any:
        return self.module(**dict(zip(self.names, inputs, strict=True)))


def export(model: MultiExitModel, folder: Path) -> Path:
    """Hugging Face's class as an ONNX file, for batches of any size and length.

    By the exporter that traces: files of the newer one cannot be quantised by ONNX Runtime's own tool.
    """
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if model.backbone.config.type_vocab_size > 1 else 2]
    module = _ByPosition(copy.deepcopy(plain_model(model)).float().cpu(), names).eval()
    example = torch.ones(2, 8, dtype=torch.long)
    inputs = {"input_ids": example + model.backbone.vocab_size // 2, "attention_mask": example}
    inputs["token_type_ids"] = torch.zeros_like(example)
    axes = {name: {0: "batch", 1: "tokens"} for name in names}
    path = folder / "model.onnx"
    with quiet(), torch.no_grad():
        torch.onnx.export(
            module,
            tuple(inputs[name] for name in names),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=["logits"],
            dynamic_axes={
                **axes,
                "logits": {0: "batch", 1: "tokens"} if model.objective.name == "span" else {0: "batch"},
            },
        )
    return path


def quantised(path: Path) -> Path:
    """The same in int8, by ONNX Runtime's dynamic quantisation."""
    tool = needs("onnxruntime.quantization", "onnx")
    to = path.with_name("int8.onnx")
    with quiet():
        tool.quantize_dynamic(str(path), str(to), weight_type=tool.QuantType.QInt8)
    return to


@contextmanager
def quiet() -> Iterator[None]:
    """Exporters tell of tracing and of steps that could be taken: nothing a user of ours can act on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = logging.root.manager.disable
        logging.disable(max(before, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(before)
