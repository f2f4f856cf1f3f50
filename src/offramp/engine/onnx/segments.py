"""A model as ONNX graphs: its embeddings, each layer, each exit.

Two dialects of the same computation. The engine runs one row at a time and uses ONNX Runtime's fused operators. What is
exported uses standard operators, takes padded batches, and runs anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from offramp.backbones.parts import LayerParts
from offramp.engine.onnx.graph import CONTRIB, Graph
from offramp.engine.onnx.quantising import LARGEST, LARGEST_HALVED, quantise
from offramp.engine.processor import has_wide_dot_products
from offramp.engine.runner import NO_EXIT
from offramp.models import MultiExitModel

ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "gelu": ("Gelu", {}),
    "gelu_python": ("Gelu", {}),
    "gelu_new": ("Gelu", {"approximate": "tanh"}),
    "gelu_fast": ("Gelu", {"approximate": "tanh"}),
    "gelu_pytorch_tanh": ("Gelu", {"approximate": "tanh"}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
}
"""The ONNX operator of each of Hugging Face's activations."""
BELOW_ZERO = 0.17
"""How far GELU goes: a token that is nowhere higher is divided by this."""
TINY = 1e-12
"""Nothing is divided by less."""


def why_not(model: MultiExitModel) -> str | None:
    """What these graphs cannot hold of a model; None where they can."""
    if model.gates is not None:
        return "gates decide for each input what is computed"
    if model.backbone.config.hidden_act not in ACTIVATIONS:
        return f"its activation {model.backbone.config.hidden_act!r} has no ONNX operator here"
    if getattr(model.backbone.config, "inner_group_num", 1) > 1:
        return "its layers hold several layers each (inner_group_num)"
    return None


class Segments(ABC):
    """Writes the graphs of a model. `int8` quantises the products of the layers; exits and embeddings stay in fp32.

    Weights in int8 lie within ±`largest`; default: as far as this processor adds their products without overflow.
    """

    def __init__(self, model: MultiExitModel, int8: bool, largest: int | None = None) -> None:
        self.model = model
        self.backbone = model.backbone
        self.int8 = int8
        self.largest = largest or (LARGEST if has_wide_dot_products() else LARGEST_HALVED)
        self.width = model.backbone.hidden_size

    def embed(self) -> bytes:
        """input_ids and, where the backbone tells texts apart, token_type_ids (B, T) to hidden (B, T, H)."""
        graph = Graph()
        ids = graph.input("input_ids", ("B", "T"), integers=True)
        tables = self.backbone.model.embeddings
        words = graph.add("Gather", graph.weight(array(tables.word_embeddings.weight)), ids)
        places = graph.add("Gather", graph.weight(array(tables.position_embeddings.weight)), self._places(graph, ids))
        kinds = graph.weight(array(tables.token_type_embeddings.weight))
        if self.backbone.config.type_vocab_size > 1:
            kind = graph.add("Gather", kinds, graph.input("token_type_ids", ("B", "T"), integers=True))
        else:
            kind = kinds  # (1, E): the same for every token
        hidden = self._norm(graph, graph.add("Add", graph.add("Add", words, kind), places), tables.LayerNorm)
        if wider := getattr(self.backbone.model.encoder, "embedding_hidden_mapping_in", None):
            hidden = self._dense(graph, hidden, wider)
        graph.output("hidden", hidden, ("B", "T", self.width))
        return graph.model()

    def _layer(self, graph: Graph, index: int, hidden: str) -> str:
        """Layer `index` (0-based): (B, T, H) to the same."""
        parts = self.backbone.parts(index)
        context = self._attention(graph, hidden, parts)
        attended = self._add_norm(graph, self._linear(graph, context, parts.attended), hidden, parts.attended_norm)
        neurons = self._activated(graph, *self._linear_by_token(graph, attended, parts.neurons))
        at_least_zero = self.backbone.config.hidden_act != "tanh"  # or nearly
        summed = self._linear_by_token(graph, neurons, parts.summed, signed=not at_least_zero)
        return self._add_norm(graph, summed[0], attended, parts.summed_norm, bias=summed[1])

    @abstractmethod
    def _attention(self, graph: Graph, hidden: str, parts: LayerParts) -> str:
        """(B, T, H) to what the heads gathered, side by side: (B, T, heads · width)."""

    @abstractmethod
    def _quantised(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str = "") -> str:
        """A product in int8, activations quantised by one scale for all they hold."""

    @abstractmethod
    def _activated(self, graph: Graph, given: str, bias: str) -> str:
        """Activation(given + bias)."""

    def _add_norm(self, graph: Graph, given: str, skipped: str, norm: nn.LayerNorm, bias: str = "") -> str:
        """Norm(given + bias + skipped)."""
        given = graph.add("Add", given, bias) if bias else given
        return self._norm(graph, graph.add("Add", given, skipped), norm)

    def _linear(self, graph: Graph, given: str, linear: nn.Linear) -> str:
        weight, bias = array(linear.weight).T, graph.weight(array(linear.bias))
        if self.int8:
            return self._quantised(graph, given, weight, bias)
        return graph.add("Add", graph.add("MatMul", given, graph.weight(weight)), bias)

    def _linear_by_token(self, graph: Graph, given: str, *linears: nn.Linear, signed: bool = True) -> tuple[str, str]:
        """Linear maps of the same input, side by side, without their bias, and the bias.

        In int8 every token has a scale of its own: some tokens are many times larger than the others, and would leave
        them little of a common one. So each is divided by its largest number, and its product multiplied by that.
        """
        weight = np.concatenate([array(linear.weight).T for linear in linears], 1)  # (in, out)
        bias = graph.weight(np.concatenate([array(linear.bias) for linear in linears]))
        if not self.int8:
            return graph.add("MatMul", given, graph.weight(weight)), bias
        sizes = graph.add("Abs", given) if signed else given
        largest = graph.add("ReduceMax", sizes, graph.whole(-1), keepdims=1)  # (B, T, 1)
        largest = graph.add("Max", largest, graph.number(TINY if signed else BELOW_ZERO))
        product = self._quantised(graph, graph.add("Div", given, largest), weight)
        return graph.add("Mul", product, largest), bias

    @staticmethod
    def _dense(graph: Graph, given: str, linear: nn.Linear) -> str:
        """A linear map in fp32, whatever the layers are in."""
        product = graph.add("MatMul", given, graph.weight(array(linear.weight).T))
        return graph.add("Add", product, graph.weight(array(linear.bias)))

    def _head(self, graph: Graph, exit: int, pooled: str) -> str:
        exits: Any = self.model.exits
        if exits.pooler_of:
            pooled = graph.add("Tanh", self._dense(graph, pooled, exits.poolers[str(exits.pooler_of[exit])]))
        return self._dense(graph, pooled, exits.classifiers[str(exits.classifier_of[exit])])

    @staticmethod
    def _norm(graph: Graph, given: str, norm: nn.LayerNorm) -> str:
        scale, shift = graph.weight(array(norm.weight)), graph.weight(array(norm.bias))
        return graph.add("LayerNormalization", given, scale, shift, axis=-1, epsilon=norm.eps)

    def _places(self, graph: Graph, ids: str) -> str:
        """The position of each token, as the family counts: 0, 1 … or, for RoBERTa, padding + 1 … for real tokens."""
        if self.backbone.family != "roberta":
            tokens = graph.add("Gather", graph.add("Shape", ids), graph.weight(np.array(1)))
            return graph.add("Range", graph.weight(np.array(0)), tokens, graph.weight(np.array(1)))
        padding = graph.whole(self.backbone.config.pad_token_id)
        real = graph.add("Cast", graph.add("Not", graph.add("Equal", ids, padding)), to=graph.onnx.TensorProto.INT64)
        count = graph.add("CumSum", real, graph.weight(np.array(1)))
        return graph.add("Add", graph.add("Mul", count, real), padding)


class FusedSegments(Segments):
    """For ONNX Runtime, one row at a time: nothing is padded, and an int8 scale is the row's own."""

    def layers(self, indices: Sequence[int]) -> bytes:
        """Some layers and all exits, which share a session and its threads.

        `layer` and `exit` say which are run; an exit of -1 is none.
        """
        graph = Graph()
        hidden = graph.input("hidden", ("B", "T", self.width))
        layer, exit = (graph.input(name, (), integers=True) for name in ("layer", "exit"))
        after = one_of(graph, layer, indices, partial(self._layer, hidden=hidden))
        graph.output("after", after, ("B", "T", self.width))
        exits = [NO_EXIT, *range(len(self.model.exits))]
        logits = one_of(graph, exit, exits, partial(self._exit, after=after))
        graph.output("logits", logits, ("n", self.model.outputs))
        return graph.model()

    def _exit(self, graph: Graph, exit: int, after: str) -> str:
        """One row's logits: (1, C), or (T, 2) for spans."""
        if exit == NO_EXIT:
            return graph.add("Identity", graph.weight(np.zeros((0, self.model.outputs), np.float32)))
        return self._head(graph, exit, self._pooled(graph, after))

    def _pooled(self, graph: Graph, after: str) -> str:
        exits: Any = self.model.exits
        if exits.each_token:
            return graph.add("Squeeze", after, graph.whole(0))
        tokens = graph.whole(1)  # the dimension that goes
        pooled = ""
        for kind in exits.pooling:
            if kind == "first":
                part = graph.add("Gather", after, graph.weight(np.array(0)), axis=1)
            else:
                part = graph.add("ReduceMean" if kind == "mean" else "ReduceMax", after, tokens, keepdims=0)
            pooled = graph.add("Add", pooled, part) if pooled else part
        return pooled

    def _attention(self, graph: Graph, hidden: str, parts: LayerParts) -> str:
        joint, bias = self._linear_by_token(graph, hidden, parts.query, parts.key, parts.value)
        query = graph.add("Split", joint, axis=2, num_outputs=3, outputs=3)
        given = (query, f"{query}_1", f"{query}_2", bias)
        return graph.add("MultiHeadAttention", *given, domain=CONTRIB, num_heads=parts.heads)

    def _quantised(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str = "") -> str:
        quantised, scale = quantise(weight, self.largest)
        weights = (graph.weight(quantised), graph.weight(scale), "", bias)
        return graph.add("DynamicQuantizeMatMul", given, *weights, domain=CONTRIB)

    def _activated(self, graph: Graph, given: str, bias: str) -> str:
        kind, settings = ACTIVATIONS[self.backbone.config.hidden_act]
        if kind == "Gelu":
            fused = "FastGelu" if settings else "BiasGelu"
            return graph.add(fused, given, bias, domain=CONTRIB)
        return graph.add(kind, graph.add("Add", given, bias), **settings)


def one_of(graph: Graph, which: str, numbers: Sequence[int], part: Callable[[Graph, int], str]) -> str:
    """The part whose number `which` holds; numbers ascend.

    Each lies in the branch that it is run in, with its weights: there the runtime prepares them for its products.
    """
    if len(numbers) == 1:
        return part(graph, numbers[0])
    middle = len(numbers) // 2
    branches = []
    for half in (numbers[:middle], numbers[middle:]):
        branch = graph.inner(f"{which}{half[0]}-{half[-1]}")
        branches.append(branch.branch(one_of(branch, which, half, part)))
    lower = graph.add("Less", which, graph.weight(np.array(numbers[middle], np.int64)))
    return graph.either(lower, *branches)


def array(tensor: torch.Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return values
