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

IN_ONE_CALL = 64_000_000
"""Bytes of weights up to which rows are run in one call: that takes sessions of its own, each with all weights."""


def make_batcher(engine: Engine, default: Route, full_depth: Route, most_tokens: int, report: Report) -> Batcher:
    """Rows each on a core (ONNX Runtime), in pools (torch), or, on the default route, through CUDA graphs."""
    same_layers = has_one_layer(engine.model)
    if not isinstance(engine.runner, HostRunner):
        others = layers_in_torch(engine.model, engine.setting)
        return GraphBatcher(engine.runner, default, others, same_layers, most_tokens, report)
    if engine.setting.backend == "onnx":
        from offramp.engine.onnx.whole_rows import OnnxRunner

        assert isinstance(engine.runner, OnnxRunner)
        layers_in_onnx = engine.runner.layers
        runners = {route: OnnxRunner(engine.model, route.policy, layers_in_onnx) for route in (default, full_depth)}
        small = layers_in_onnx.bytes_in_one_graph() <= IN_ONE_CALL
        whole = {route: runner for route, runner in runners.items() if small and runner.most_whole != 0}
        return RowBatcher(layers_in_onnx, report, whole)
    layers = engine.runner.layers
    if isinstance(layers, TorchLayers) and layers.cost is not None:
        most_tokens = min(most_tokens, max(1, layers.cost.worth()))
    return PoolBatcher(layers, same_layers, most_tokens, report, partial(torch_at_work, engine.setting))
