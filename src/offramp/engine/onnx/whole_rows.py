"""A row's whole way through the layers in one call of ONNX Runtime: the policy decides inside the graph.

Between two layers nothing returns to Python: its call, its copies and the policy in small tensor operations cost a
tenth of a layer of BERT-base in int8, and half of one of a narrow model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.host_runner import HostRunner
from offramp.engine.onnx.graph import Graph
from offramp.engine.onnx.onnx_layers import GRAPH_BYTES, OnnxLayers
from offramp.engine.onnx.rules import Asked, has_rule, leaves
from offramp.engine.onnx.segments import FusedSegments
from offramp.engine.onnx.sessions import open_session
from offramp.engine.runner import Finished, Packed
from offramp.engine.torch_threads import torch_threads
from offramp.engine.waves import Route
from offramp.models import MultiExitModel
from offramp.policies import Policy, State

OUTPUTS = ["logits", "exit"]
"""Of a row. Named, they have not to be looked up each time."""
IN_CACHE = 16_000_000
"""Bytes of weights that a processor has near at hand. Of larger models a batch is run layer by layer: each layer's
weights come from memory once for all rows."""
START = "start{}"
"""An input that holds something of the policy's state before the first exit: which of the inputs it is."""


class OnnxRunner(HostRunner):
    """Runs rows one at a time from the first layer to where they leave, several of them at once on as many cores.

    Layer by layer, as its base does, where the graph cannot hold the way: with a policy of the user's own, spans, every
    exit recorded, or more than one graph may hold. The graph has a copy of the weights for each layer, so a large
    ALBERT goes layer by layer, too.
    """

    layers: OnnxLayers

    def __init__(self, model: MultiExitModel, policy: Policy, layers: OnnxLayers, *, record: bool = False) -> None:
        super().__init__(model, policy, layers, record=record)
        size = layers.bytes_in_one_graph()
        can = not (record or self.route.spans) and size <= GRAPH_BYTES and has_rule(policy)
        self.most_whole = 0 if not can else None if size <= IN_CACHE else 0 if self.same_layers else 1
        """Rows of a batch that are run whole, if there are no more; None is any number."""
        self.sessions: dict[int, Any] = {}

    def submit(self, rows: Packed) -> list[Finished]:
        whole = self.most_whole is None or len(rows) <= self.most_whole
        if whole and len(rows):
            return self.run_whole(rows, self.layers.threads_for(len(rows)))
        with torch_threads(1):  # a policy's step is small, and to wake a second thread for it takes a millisecond
            return super().submit(rows)

    def flush(self) -> list[Finished]:
        with torch_threads(1):
            return super().flush()

    def run_whole(self, rows: Packed, threads: int) -> list[Finished]:
        """Rows in a session of so many threads. On one, several callers may do so at once."""
        session = self._session(threads)
        hidden = self.layers.embed(rows)
        begun = starts(self.route.policy.start(torch.from_numpy(rows.tickets)))

        def run(place: int) -> Any:
            feed = {name: numbers[place : place + 1] for name, numbers in begun.items()}
            return session.run(OUTPUTS, {"hidden": hidden[place], **feed})

        done = self.layers.on_all_cores(run, range(len(rows)))
        exits = np.array([exit[0] for _, exit in done], np.int64)
        return [Finished(rows.tickets, exits, [logits[0] for logits, _ in done])]

    def _session(self, threads: int) -> Any:
        if threads not in self.sessions:
            self.sessions[threads] = open_session(WholeWay(self.layers.segments, self.route).model, threads)
        return self.sessions[threads]


class WholeWay:
    """Writes the graph of every layer and every exit that is asked: after each exit a row either leaves or goes on."""

    def __init__(self, segments: FusedSegments, route: Route) -> None:
        self.segments = segments
        self.route = route

    def model(self, graph: Graph) -> bytes:
        """hidden (1, T, H) to the logits (1, C) that a row leaves with, and the number of its exit.

        What the policy starts with comes as further inputs, see `starts`.
        """
        hidden = graph.input("hidden", (1, "T", self.segments.width))
        state = self._inputs(graph, self.route.policy.start(torch.arange(0)))
        logits, exit = self._onward(graph, hidden, 0, [], state)
        graph.output("logits", logits, (1, self.segments.model.outputs))
        graph.output("exit", exit, (1,))
        return graph.model()

    def _inputs(self, graph: Graph, state: State) -> Any:
        if isinstance(state, tuple):
            return tuple(self._inputs(graph, part) for part in state)
        return None if state is None else graph.input(START.format(len(graph.inputs)), (1,), integers=True)

    def _onward(self, graph: Graph, hidden: str, layer: int, asked: Sequence[int], state: Any) -> Sequence[str]:
        """From the output of so many layers, with these exits still to be asked about it, to where the row leaves."""
        if not asked:
            after = self.segments.add_layer(graph, layer, hidden)
            return self._onward(graph, after, layer + 1, self.route.asked_after[layer + 1], state)
        exit, *others = asked
        logits = self.segments.add_exit(graph, exit, hidden)
        leave: str | bool = True
        if exit != self.route.last:
            about = Asked(graph, layer, logits, self.segments.model.outputs)
            leave, state = leaves(self.route.policy, about, state)
        if leave is True:
            return self._gone(graph, hidden, logits, exit)
        if leave is False:
            return self._onward(graph, hidden, layer, others, state)
        here, further = graph.inner(f"exit{exit}"), graph.inner(f"after{exit}")
        gone = here.branch(self._gone(here, hidden, logits, exit))
        return graph.either(leave, gone, further.branch(self._onward(further, hidden, layer, others, state)))

    def _gone(self, graph: Graph, hidden: str, logits: str, exit: int) -> Sequence[str]:
        number = graph.add("Identity", graph.weight(np.array([exit], np.float32)))
        if not self.segments.int8:
            return graph.add("Identity", logits), number
        # Rounding to int8 hides NaN, see `OnnxLayers.is_sound`: here it is brought back.
        channel = graph.add("Gather", hidden, graph.weight(np.array(0)), axis=2)
        nothing = graph.add("Mul", graph.add("ReduceSum", channel, keepdims=0), graph.number(0))
        return graph.add("Add", logits, nothing), number


def starts(state: State) -> dict[str, NDArray[np.int64]]:
    """The numbers that a policy starts with, each (rows,), by the name of the graph's input for them."""
    return {START.format(number): part.numpy() for number, part in enumerate(_tensors(state), 1)}


def _tensors(state: State) -> Iterator[Tensor]:
    if isinstance(state, tuple):
        for part in state:
            yield from _tensors(part)
    elif state is not None:
        yield state
