"""A model as ONNX graphs: its embeddings, each layer, each exit.

Two dialects of the same computation. The engine runs one row at a time and uses ONNX Runtime's fused operators. What is
exported uses standard operators, takes padded batches, and runs anywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from offramp.backbones.parts import LayerParts
from offramp.engine.onnx.equalising import TINY, divisors, largest_inputs
from offramp.engine.onnx.graph import CONTRIB, Graph
from offramp.engine.onnx.quantising import LARGEST, LARGEST_HALVED, quantise
from offramp.engine.processor import has_wide_dot_products
from offramp.engine.runner import NO_EXIT
from offramp.models import MultiExitModel
from offramp.models.exits import TwoLayers

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
"""How far GELU goes."""
STEPS = 255
"""Between the smallest and the largest of an unsigned number of 8 bits."""
STEPS_BELOW = 32
"""For what GELU leaves below zero: with few of them small tokens, with many large ones would be coarse."""


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

    @cached_property
    def largest_inputs(self) -> dict[nn.Module, NDArray[np.float32]]:
        """By channel, for those maps whose channels differ; nothing has to be known of them in fp32."""
        return largest_inputs(self.model) if self.int8 else {}

    def embed(self, graph: Graph) -> bytes:
        """input_ids and, where the backbone tells texts apart, token_type_ids (B, T) to hidden (B, T, H)."""
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

    def add_layer(self, graph: Graph, index: int, hidden: str) -> str:
        """Layer `index` (0-based): (B, T, H) to the same."""
        parts = self.backbone.parts(index)
        context = self._attention(graph, hidden, parts)
        attended = self._add_norm(graph, self._linear(graph, context, parts.attended), hidden, parts.attended_norm)
        kind, settings = ACTIVATIONS[self.backbone.config.hidden_act]
        neurons = graph.add(kind, self._linear(graph, attended, parts.neurons), **settings)
        at_least_zero = self.backbone.config.hidden_act != "tanh"  # or nearly
        summed = self._linear_by_token(graph, neurons, parts.summed, signed=not at_least_zero)
        return self._add_norm(graph, summed, attended, parts.summed_norm)

    @abstractmethod
    def _attention(self, graph: Graph, hidden: str, parts: LayerParts) -> str:
        """(B, T, H) to what the heads gathered, side by side: (B, T, heads · width)."""

    @abstractmethod
    def _quantised(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str) -> str:
        """A product in int8, activations quantised by one scale for all they hold."""

    @abstractmethod
    def _stepped(self, graph: Graph, given: str, steps: tuple[str, str], weight: NDArray[np.float32]) -> str:
        """A product in int8, activations quantised by a step for each token and one zero, without the steps' size."""

    def _add_norm(self, graph: Graph, given: str, skipped: str, norm: nn.LayerNorm) -> str:
        """Norm(given + skipped)."""
        return self._norm(graph, graph.add("Add", given, skipped), norm)

    def _linear(self, graph: Graph, given: str, *linears: nn.Linear) -> str:
        """Linear maps of the same input, side by side."""
        given, weight, bias = self._operands(graph, given, *linears)
        if self.int8:
            return self._quantised(graph, given, weight, bias)
        return graph.add("Add", graph.add("MatMul", given, graph.weight(weight)), bias)

    def _operands(self, graph: Graph, given: str, *linears: nn.Linear) -> tuple[str, NDArray[np.float32], str]:
        """Input, weights (in, out) and bias of linear maps side by side.

        In int8, what a norm gives is brought to like size, channel by channel: then one scale serves all tokens of a
        text.
        """
        weight = np.concatenate([array(linear.weight).T for linear in linears], 1)
        bias = graph.weight(np.concatenate([array(linear.bias) for linear in linears]))
        if (largest := self.largest_inputs.get(linears[0])) is not None:
            by = divisors(largest, weight)
            given, weight = graph.add("Mul", given, graph.weight(1 / by)), weight * by[:, None]
        return given, weight, bias

    def _linear_by_token(self, graph: Graph, given: str, linear: nn.Linear, signed: bool) -> str:
        """A linear map of what the activation gave.

        In int8 every token has a scale of its own: some tokens are many times larger than the others, and would leave
        them little of a common one.
        """
        if not self.int8:
            return self._linear(graph, given, linear)
        # Where zero lies is fixed: a product has one zero for all that it is fed.
        below, least = (STEPS // 2 + 1, TINY) if signed else (STEPS_BELOW, BELOW_ZERO)
        sizes = graph.add("Abs", given) if signed else given
        largest = graph.add("ReduceMax", sizes, graph.whole(-1), keepdims=1)  # (B, T, 1)
        step = graph.add("Mul", largest, graph.number(1 / (STEPS - below)))
        step = graph.add("Max", step, graph.number(least / below))
        zero = graph.weight(np.array(below, np.uint8))
        product = self._stepped(graph, given, (step, zero), array(linear.weight).T)
        return graph.add("Add", graph.add("Mul", product, step), graph.weight(array(linear.bias)))

    @staticmethod
    def _dense(graph: Graph, given: str, linear: nn.Linear) -> str:
        """A linear map in fp32, whatever the layers are in."""
        product = graph.add("MatMul", given, graph.weight(array(linear.weight).T))
        return graph.add("Add", product, graph.weight(array(linear.bias)))

    def _head(self, graph: Graph, exit: int, pooled: str) -> str:
        exits: Any = self.model.exits
        if exits.pooler_of:
            pooled = graph.add("Tanh", self._dense(graph, pooled, exits.poolers[str(exits.pooler_of[exit])]))
        classifier = exits.classifiers[str(exits.classifier_of[exit])]
        if isinstance(classifier, TwoLayers):
            pooled, classifier = graph.add("Tanh", self._dense(graph, pooled, classifier.hidden)), classifier.output
        return self._dense(graph, pooled, classifier)

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

    def layers(self, indices: Sequence[int], graph: Graph) -> bytes:
        """Some layers and all exits, which share a session and its threads.

        `layer` and `exit` say which are run; an exit of -1 is none.
        """
        hidden = graph.input("hidden", ("B", "T", self.width))
        layer, exit = (graph.input(name, (), integers=True) for name in ("layer", "exit"))
        after, logits = one_of(graph, layer, indices, lambda inner, index: self._with_exits(inner, index, hidden, exit))
        graph.output("after", after, ("B", "T", self.width))
        graph.output("logits", logits, ("n", self.model.outputs))
        return graph.model()

    def _with_exits(self, graph: Graph, index: int, hidden: str, exit: str) -> tuple[str, str]:
        """Layer `index`, and the one of its exits that is asked: inside its branch there are few to choose from."""
        after = self.add_layer(graph, index, hidden)
        modules = [self.backbone.layer_module(layer - 1) for layer in self.model.exits.layers]
        own = [number for number, module in enumerate(modules) if module is self.backbone.layer_module(index)]
        (logits,) = one_of(graph, exit, [NO_EXIT, *own], lambda inner, number: (self.add_exit(inner, number, after),))
        return after, logits

    def add_exit(self, graph: Graph, exit: int, after: str) -> str:
        """One row's logits: (1, C), or (T, 2) for spans."""
        if exit == NO_EXIT:
            return graph.add("Identity", graph.weight(np.zeros((0, self.model.outputs), np.float32)))
        return self._head(graph, exit, self._pooled(graph, exit, after))

    def _pooled(self, graph: Graph, exit: int, after: str) -> str:
        exits: Any = self.model.exits
        if exits.each_token:
            return graph.add("Squeeze", after, graph.whole(0))
        tokens = graph.whole(1)  # the dimension that goes
        pooled = ""
        for kind in exits.pooling_of[exit]:
            if kind == "first":
                part = graph.add("Gather", after, graph.weight(np.array(0)), axis=1)
            else:
                part = graph.add("ReduceMean" if kind == "mean" else "ReduceMax", after, tokens, keepdims=0)
            pooled = graph.add("Add", pooled, part) if pooled else part
        return pooled

    def _attention(self, graph: Graph, hidden: str, parts: LayerParts) -> str:
        linears = (parts.query, parts.key, parts.value)
        if self.int8:
            return self._quantised_attention(graph, *self._operands(graph, hidden, *linears), heads=parts.heads)
        query = graph.add("Split", self._linear(graph, hidden, *linears), axis=2, num_outputs=3, outputs=3)
        return graph.add("MultiHeadAttention", query, f"{query}_1", f"{query}_2", domain=CONTRIB, num_heads=parts.heads)

    def _quantised_attention(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str, heads: int) -> str:
        """The first product, too, is in the operator: what it gives has not to be moved."""
        quantised, scale = quantise(weight, self.largest)
        rounded = graph.add("DynamicQuantizeLinear", given, outputs=3)  # with its scale and its zero
        weights = (graph.weight(quantised), bias, f"{rounded}_1", graph.weight(scale), "", f"{rounded}_2")
        return graph.add("QAttention", rounded, *weights, domain=CONTRIB, num_heads=heads)

    def _quantised(self, graph: Graph, given: str, weight: NDArray[np.float32], bias: str) -> str:
        quantised, scale = quantise(weight, self.largest)
        weights = (graph.weight(quantised), graph.weight(scale), "", bias)
        return graph.add("DynamicQuantizeMatMul", given, *weights, domain=CONTRIB)

    def _stepped(self, graph: Graph, given: str, steps: tuple[str, str], weight: NDArray[np.float32]) -> str:
        step, zero = graph.add("Reshape", steps[0], graph.whole(-1)), steps[1]  # (T,)
        rounded = graph.add("QuantizeLinear", given, step, graph.add("Expand", zero, graph.add("Shape", step)), axis=1)
        quantised, scale = quantise(weight, self.largest)
        weights = (graph.weight(quantised), graph.number(1), graph.weight(scale), zero)
        return graph.add("MatMulIntegerToFloat", rounded, *weights, domain=CONTRIB)


def one_of(
    graph: Graph, which: str, numbers: Sequence[int], part: Callable[[Graph, int], Sequence[str]]
) -> Sequence[str]:
    """What the part gives whose number `which` holds; numbers ascend.

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
