"""A small builder of ONNX graphs: nodes one after another, weights by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from offramp.errors import needs

OPSET = 20
"""The first with Gelu."""
CONTRIB = "com.microsoft"
"""ONNX Runtime's own operators: several nodes in one."""


class WeightsFile:
    """Weights that lie beside a graph, not in it: ONNX Runtime copies what a branch holds once for each around it."""

    NAME = "weights"
    LEAST = 1024
    """Bytes of weights that are worth it."""
    APART = 64
    """Each begins at a multiple of this, in bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.onnx = needs("onnx", "onnx")

    def add(self, value: NDArray[Any], name: str) -> Any:
        """Write it, and say where it lies."""
        self.file.write(bytes(-self.file.tell() % self.APART))
        start = self.file.tell()
        self.file.write(value.data)
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor = self.onnx.TensorProto(name=name, data_type=kind, dims=value.shape)
        tensor.data_location = self.onnx.TensorProto.EXTERNAL
        for key, where in (("location", self.NAME), ("offset", start), ("length", value.nbytes)):
            tensor.external_data.add(key=key, value=str(where))
        return tensor


class Graph:
    """Adds nodes, names what they give, and writes a model at the end."""

    def __init__(self, prefix: str = "", beside: WeightsFile | None = None) -> None:
        self.onnx = needs("onnx", "onnx")
        self.prefix = prefix
        """Before every name, where several graphs lie in one another."""
        self.beside = beside
        """Where large weights go; None: into the graph."""
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.domains: set[str] = set()
        """Of operators beyond the standard ones."""

    def input(self, name: str, shape: Sequence[int | str], integers: bool = False) -> str:
        kind = self.onnx.TensorProto.INT64 if integers else self.onnx.TensorProto.FLOAT
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, given: str, shape: Sequence[int | str]) -> None:
        """Hand out `given` under a name of its own."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [given], [name]))
        value = self.onnx.helper.make_tensor_value_info(name, self.onnx.TensorProto.FLOAT, list(shape))
        self.outputs.append(value)

    def weight(self, value: NDArray[Any]) -> str:
        name = f"{self.prefix}w{len(self.weights)}"
        self.weights[name] = np.asarray(value, order="C")
        return name

    def number(self, value: float) -> str:
        return self.weight(np.array(value, np.float32))

    def whole(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def add(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **settings: Any) -> str:
        """A node; the name of what it gives (its first output: others are NAME_1, NAME_2 …)."""
        name = f"{self.prefix}n{len(self.nodes)}"
        self.domains |= {domain} - {""}
        names = [name, *(f"{name}_{other}" for other in range(1, outputs))]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, domain=domain, **settings))
        return name

    def inner(self, name: str) -> Graph:
        """A graph for a branch of this one."""
        graph = Graph(f"{self.prefix}{name}/", self.beside)
        graph.domains = self.domains
        return graph

    def either(self, condition: str, then: Any, otherwise: Any) -> list[str]:
        """What one of two branches gives."""
        given = len(then.output)
        name = self.add("If", condition, outputs=given, then_branch=then, else_branch=otherwise)
        return [name, *(f"{name}_{other}" for other in range(1, given))]

    def branch(self, given: Sequence[str]) -> Any:
        """These nodes and weights as a branch that gives `given`; other names it uses are of the graph around it."""
        kind = self.onnx.TensorProto.FLOAT
        values = [self.onnx.helper.make_tensor_value_info(name, kind, None) for name in given]
        return self.onnx.helper.make_graph(self.nodes, self.prefix, [], values, self._weights())

    def _weights(self) -> list[Any]:
        return [self._written(value, name) for name, value in self.weights.items()]

    def _written(self, value: NDArray[Any], name: str) -> Any:
        if self.beside is not None and value.nbytes >= self.beside.LEAST:
            return self.beside.add(value, name)
        return self.onnx.numpy_helper.from_array(value, name)

    def model(self) -> bytes:
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "offramp", self.inputs, self.outputs, self._weights())
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in sorted(self.domains))]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="offramp", ir_version=9)
        written: bytes = model.SerializeToString()
        return written
