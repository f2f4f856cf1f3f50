"""The batcher that suits an engine."""

from __future__ import annotations

from functools import partial

from offramp.engine import Engine
from offramp.engine.backends import layers_in_torch, torch_at_work
from offramp.engine.host_runner import HostRunner
from offramp.engine.torch_layers import TorchLayers
from offramp.engine.waves import Route, has_one_layer
from offramp.serving.batching import Batcher, PoolBatcher, Report, RowBatcher
from offramp.serving.graph_batching import GraphBatcher


def make_batcher(engine: Engine, default: Route, most_tokens: int, report: Report) -> Batcher:
    """Rows each on a core (ONNX Runtime), in pools (torch), or, on the default route, through CUDA graphs."""
    same_layers = has_one_layer(engine.model)
    if not isinstance(engine.runner, HostRunner):
        others = layers_in_torch(engine.model, engine.setting)
        return GraphBatcher(engine.runner, default, others, same_layers, most_tokens, report)
    if engine.setting.backend == "onnx":
        from offramp.engine.onnx.onnx_layers import OnnxLayers

        assert isinstance(engine.runner.layers, OnnxLayers)
        return RowBatcher(engine.runner.layers, report)
    layers = engine.runner.layers
    if isinstance(layers, TorchLayers) and layers.cost is not None:
        most_tokens = min(most_tokens, max(1, layers.cost.worth()))
    return PoolBatcher(layers, same_layers, most_tokens, report, partial(torch_at_work, engine.setting))
