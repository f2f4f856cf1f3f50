"""Graphs for any runtime: standard operators, padded batches with their mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offramp.backbones.parts import LayerParts
from offramp.engine.onnx.graph import Graph
from offramp.engine.onnx.quantising import quantise
from offramp.engine.onnx.segments import Segments

NO_ANSWER = float(np.finfo(np.float32).min)
"""What padding is given: softmax makes nothing of it, and it stays finite."""


class PortableSegments(Segments):
    """What `offramp export` writes. Layers and exits take hidden (B, T, H) and attention_mask (B, T), 1 for tokens.

    In int8 one scale holds for all that a product is fed: a row's answer is its own only where it is run alone.
    """

    def layer(self, index: int) -> bytes:
        """Layer `index` (0-based): hidden (B, T, H) to the same."""
        graph = Graph()
        after = self.add_layer(graph, index, graph.input("hidden", ("B", "T", self.width)))
        graph.output("after", after, ("B", "T", self.width))
        return graph.model()

    def exit(self, exit: int) -> bytes:
        """A layer's output to logits (B, C) or, for spans, (B, T, 2) with padding at the smallest number."""
        graph = Graph()
        hidden = graph.input("hidden", ("B", "T", self.width))
        real = self._real_tokens(graph)
        exits: Any = self.model.exits
        pooled = hidden if exits.each_token else self._pooled(graph, exit, hidden, real)
        logits = self._head(graph, exit, pooled)
        if exits.each_token and not exits.pool_padding:
            logits = graph.add("Where", _each_token(graph, real), logits, graph.number(NO_ANSWER))
        graph.output("logits", logits, ("B", "T", 2) if exits.each_token else ("B", self.model.outputs))
        return graph.model()

    def _pooled(self, graph: Graph, exit: int, hidden: str, real: str) -> str:
        """One vector for each row, a sum where several poolings are named: (B, T, H) to (B, H)."""
        exits: Any = self.model.exits
        seen = None if exits.pool_padding else real
        pooled = ""
        for kind in exits.pooling_of[exit]:
            part = _first(graph, hidden, real) if kind == "first" else OVER_TOKENS[kind](graph, hidden, seen)
            pooled = graph.add("Add", pooled, part) if pooled else part
        return pooled

    def _attention(self, graph: Graph, hidden: str, parts: LayerParts) -> str:
        real = self._real_tokens(graph)
        joint = self._linear(graph, hidden, parts.query, parts.key, parts.value)
        query = graph.add("Split", joint, axis=2, num_outputs=3, outputs=3)
        by_head = graph.whole(0, 0, parts.heads, parts.head_width)
        q, k, v = (
            graph.add("Transpose", graph.add("Reshape", each, by_head), perm=order)
            for each, order in ((query, (0, 2, 1, 3)), (f"{query}_1", (0, 2, 3, 1)), (f"{query}_2", (0, 2, 1, 3)))
        )
        scaled = graph.add("Mul", q, graph.number(1 / math.sqrt(parts.head_width)))
        scores = graph.add("MatMul", scaled, k)  # (B, heads, T, T)
        keys = graph.add("Unsqueeze", real, graph.whole(1, 2))  # (B, 1, 1, T)
        shares = graph.add("Softmax", graph.add("Where", keys, scores, graph.number(NO_ANSWER)), axis=-1)
        gathered = graph.add("Transpose", graph.add("MatMul", shares, v), perm=(0, 2, 1, 3))
        return graph.add("Reshape", gathered, graph.whole(0, 0, parts.heads * parts.head_width))

    def _quantised(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str) -> str:
        rounded = graph.add("DynamicQuantizeLinear", given, outputs=3)  # with its scale and its zero
        return graph.add("Add", self._product(graph, rounded, f"{rounded}_1", f"{rounded}_2", weight), bias)

    def _stepped(self, graph: Graph, given: str, steps: tuple[str, str], weight: NDArray[np.float32]) -> str:
        (step, zero), one = steps, graph.number(1)
        return self._product(
            graph, graph.add("QuantizeLinear", graph.add("Div", given, step), one, zero), one, zero, weight
        )

    def _product(self, graph: Graph, rounded: str, step: str, zero: str, weight: NDArray[np.float32]) -> str:
        quantised, scale = quantise(weight, self.largest)
        product = graph.add("MatMulInteger", rounded, graph.weight(quantised), zero)
        number = graph.add("Cast", product, to=graph.onnx.TensorProto.FLOAT)
        return graph.add("Mul", number, graph.add("Mul", step, graph.weight(scale)))

    @staticmethod
    def _real_tokens(graph: Graph) -> str:
        mask = graph.input("attention_mask", ("B", "T"), integers=True)
        return graph.add("Cast", mask, to=graph.onnx.TensorProto.BOOL)


def _each_token(graph: Graph, real: str) -> str:
    return graph.add("Unsqueeze", real, graph.whole(2))  # (B, T, 1)


def _first(graph: Graph, hidden: str, real: str) -> str:
    """The first real token: some tokenizers pad on the left."""
    marks = graph.add("Cast", real, to=graph.onnx.TensorProto.INT32)
    place = graph.add("ArgMax", marks, axis=1, keepdims=1)  # (B, 1)
    return graph.add("GatherND", hidden, place, batch_dims=1)


def _mean(graph: Graph, hidden: str, real: str | None) -> str:
    tokens = graph.whole(1)  # the dimension that goes
    if real is None:
        return graph.add("ReduceMean", hidden, tokens, keepdims=0)
    marks = graph.add("Cast", _each_token(graph, real), to=graph.onnx.TensorProto.FLOAT)
    total = graph.add("ReduceSum", graph.add("Mul", hidden, marks), tokens, keepdims=0)
    return graph.add("Div", total, graph.add("ReduceSum", marks, tokens, keepdims=0))


def _largest(graph: Graph, hidden: str, real: str | None) -> str:
    if real is not None:
        hidden = graph.add("Where", _each_token(graph, real), hidden, graph.number(-math.inf))
    return graph.add("ReduceMax", hidden, graph.whole(1), keepdims=0)


OVER_TOKENS = {"mean": _mean, "max": _largest}
