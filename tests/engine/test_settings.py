"""What goes together is taken, what does not is refused in one line; `auto` is the best that can."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from offramp import OfframpError
from offramp.engine import Engine, backends
from offramp.engine.onnx import onnx_layers
from offramp.models import MultiExitModel
from offramp.tasks.encoding import Row
from tests.tiny import tiny_gated_model, tiny_model

ROW = Row([4, 5, 6])


def wide_model() -> MultiExitModel:
    """Layers large enough that calls do not matter."""
    from tests import tiny

    shape = {**tiny.SHAPE, "hidden_size": 160, "intermediate_size": 640}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny, "SHAPE", shape)
        return tiny_model(layers=2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"precision": "int4"}, "precision 'int4': use auto, fp32, bf16, fp16, int8"),
        ({"backend": "tpu"}, "backend 'tpu': use auto, torch, onnx, graphs"),
        ({"threads": 0}, "threads must be 1 or more, not 0"),
        ({"batch_size": 0}, "batch size must be a whole number, 1 or more, not 0"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
        ({"precision": "int8", "backend": "torch"}, "backend torch cannot run this: int8 needs backend onnx"),
        ({"precision": "bf16", "backend": "onnx"}, "backend onnx cannot run this: it knows fp32 and int8, not bf16"),
        ({"precision": "fp16"}, "fp16 cannot be had here: fp16 is for GPUs"),
        ({"precision": "fp16", "backend": "torch"}, "backend torch cannot run this: fp16 is for GPUs"),
        ({"backend": "graphs"}, "backend graphs cannot run this: it needs a CUDA device"),
        ({"label_names": ["x"]}, "1 label names, but the model has 3 outputs"),
    ],
    ids=str,
)
def test_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(OfframpError, match=message) as refused:
        Engine(tiny_model(), **{"device": "cpu", **asked})
    assert "\n" not in str(refused.value)


def test_gates_are_for_torch() -> None:
    assert Engine(tiny_gated_model(), device="cpu").setting.backend == "torch"
    with pytest.raises(OfframpError, match="int8 cannot be had here: gates decide for each input"):
        Engine(tiny_gated_model(), device="cpu", precision="int8")


def test_auto() -> None:
    small, wide = tiny_model(), wide_model()
    assert Engine(small, device="cpu").setting.backend == "torch", "calls would cost more than what they compute"
    assert Engine(wide, device="cpu").setting.backend == "onnx"
    assert Engine(small, precision="int8").setting.device.type == "cpu", "int8 is for CPUs, also beside a GPU"
    assert str(Engine(wide, device="cpu").setting) == "cpu, fp32, onnx"


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None if name == "onnxruntime" else object())
    assert Engine(wide_model(), device="cpu").setting.backend == "torch"
    with pytest.raises(OfframpError, match=r"needs onnxruntime: pip install 'offramp\[onnx\]'"):
        Engine(wide_model(), device="cpu", precision="int8")


def test_a_runtime_that_is_not_whole(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("undefined symbol")

    monkeypatch.setattr(onnx_layers, "open_session", broken)
    with caplog.at_level(logging.WARNING):
        engine = Engine(wide_model(), "fixed(1)", "cpu")
    assert engine.setting.backend == "torch"
    assert "backend onnx failed (ONNX Runtime cannot run this here (undefined symbol)" in caplog.text
    assert next(iter(engine.answer_rows([ROW]))).exit == 0
    with pytest.raises(OfframpError, match="undefined symbol"):
        Engine(wide_model(), "fixed(1)", "cpu", backend="onnx")


def test_weights_that_are_no_numbers_are_not_rounded_to_some() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.backbone.parts(0).neurons.weight[0, 0] = torch.nan
    with pytest.raises(OfframpError, match="NaN or infinite"):
        list(Engine(model, device="cpu", precision="int8").answer_rows([ROW]))
