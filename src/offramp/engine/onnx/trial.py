"""The smallest product in int8, for a process that may die of it."""

from __future__ import annotations

import numpy as np

from offramp.engine.onnx.graph import CONTRIB, Graph
from offramp.engine.onnx.quantising import LARGEST, quantise
from offramp.engine.onnx.sessions import open_session


def multiply_in_int8() -> None:
    open_session(product_in_int8, threads=1).run(None, {"given": np.ones((8, 64), np.float32)})


def product_in_int8(graph: Graph) -> bytes:
    given = graph.input("given", ("n", 64))
    quantised, scale = quantise(np.eye(64, dtype=np.float32), LARGEST)
    product = graph.add("DynamicQuantizeMatMul", given, graph.weight(quantised), graph.weight(scale), domain=CONTRIB)
    graph.output("product", product, ("n", 64))
    return graph.model()
