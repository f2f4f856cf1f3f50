"""Layers in ONNX Runtime, fp32 or int8: rows one at a time, several of them at once on as many cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.onnx.segments import FusedSegments
from offramp.engine.onnx.sessions import open_session
from offramp.engine.runner import NO_EXIT, Packed
from offramp.engine.waves import Layers, padded_logits, weights_of_layer
from offramp.errors import OfframpError, one_line
from offramp.models import MultiExitModel

Array = NDArray[np.float32]
EMBEDDINGS = -1
OUTPUTS = ["after", "logits"]
"""Of a layer. Named, they have not to be looked up each time."""
GRAPH_BYTES = 1_500_000_000
"""Of weights in one graph: a file in this format ends at 2 GiB."""


class OnnxLayers(Layers):
    """A row is (1, T, H), and is computed alone: no padding, and in int8 a scale of its own.

    On a CPU a product over the tokens of one text is as fast, token for token, as one over many texts. One row uses all
    `threads`; of several, each uses one.
    """

    def __init__(self, model: MultiExitModel, int8: bool, threads: int) -> None:
        self.segments = FusedSegments(model, int8)
        self.threads = threads
        self.model_exits: Any = model.exits
        self.spans = model.objective.name == "span"
        self.has_types = model.backbone.config.type_vocab_size > 1
        modules = [id(model.backbone.layer_module(index)) for index in range(model.backbone.depth)]
        self.alike = [np.array(modules.index(module)) for module in modules]
        """For each layer the first that has its weights."""
        self.weights = len(modules) * weights_of_layer(model)
        self.parts = in_parts(model, sorted({int(first) for first in self.alike}))
        self.part_of = {layer: part for part, layers in enumerate(self.parts) for layer in layers}
        self.sessions: dict[tuple[int, int], Any] = {}
        self.number_of = {exit: np.array(exit) for exit in range(NO_EXIT, len(self.model_exits))}
        self.said: dict[int, tuple[int, Array]] = {}
        """The exit that was asked with the last layer, and what it said, by the layer's output for each row."""
        try:
            self._session(EMBEDDINGS, rows=1)
        except OfframpError:
            raise
        except Exception as error:  # whatever a runtime that is not whole may raise
            raise OfframpError(f"ONNX Runtime cannot run this here ({one_line(error)}): use backend torch") from error

    def lane(self) -> OnnxLayers:
        """The same sessions for one thread of the caller's: several lanes can run at once, each its own row."""
        other = copy(self)
        other.threads = 1
        other.said = {}
        return other

    def bytes_in_one_graph(self) -> int:
        """What all layers' weights take, with a copy for each layer."""
        return self.weights * (1 if self.segments.int8 else 4)

    @cached_property
    def exits(self) -> Any:
        """A copy that computes as ONNX Runtime does, whatever the model itself is kept in."""
        return deepcopy(self.model_exits).float().cpu().eval()

    @cached_property
    def workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, thread_name_prefix="offramp-rows")

    def embed(self, rows: Packed) -> list[Array]:
        ends = rows.lengths.cumsum().tolist()
        cuts = [slice(start, end) for start, end in pairwise([0, *ends])]
        feeds = [{"input_ids": rows.input_ids[None, cut]} for cut in cuts]
        if self.has_types:
            types = rows.token_type_ids if rows.token_type_ids is not None else np.zeros_like(rows.input_ids)
            for feed, cut in zip(feeds, cuts, strict=True):
                feed["token_type_ids"] = types[None, cut]
        session = self._session(EMBEDDINGS, len(rows))
        return self.on_all_cores(lambda feed: session.run(None, feed)[0], feeds)

    def layer(self, index: int, hidden: Sequence[Array], then: Sequence[int]) -> list[Array]:
        which = self.alike[index]
        session = self._session(self.part_of[int(which)], len(hidden))

        def run(place: int) -> tuple[Array, Array]:
            exit = self.number_of[then[place]]
            after, logits = session.run(OUTPUTS, {"hidden": hidden[place], "layer": which, "exit": exit})
            return after, logits

        done = self.on_all_cores(run, range(len(hidden)))
        self.said = {id(after): (exit, logits) for (after, logits), exit in zip(done, then, strict=True)}
        return [after for after, _ in done]

    def exit(self, exit: int, hidden: Sequence[Array]) -> Tensor:
        said = [self.said[id(row)] for row in hidden]
        # The second of two exits after one layer was not asked with it.
        logits = [
            torch.from_numpy(one if asked == exit else self._head(exit, row))
            for row, (asked, one) in zip(hidden, said, strict=True)
        ]
        return padded_logits(logits) if self.spans else logits[0] if len(logits) == 1 else torch.cat(logits)

    def _head(self, exit: int, row: Array) -> Array:
        """The logits of one row: (1, C), or (T, 2) for spans."""
        batch = torch.from_numpy(row)
        with torch.no_grad():
            logits = self.exits(exit, batch, torch.ones(batch.shape[:2], dtype=torch.long))
        values: Array = (logits[0] if self.spans else logits).numpy()
        return values

    def is_sound(self, hidden: Array) -> bool:
        """Rounding to int8 turns NaN into a number, but a token that holds one keeps it: by what is added to it.

        One channel of each token will do: a norm spreads NaN over all.
        """
        return not self.segments.int8 or bool(np.isfinite(hidden[..., 0].sum()))

    def _session(self, part: int, rows: int) -> Any:
        """Some of the layers, or the embeddings, made when they are first needed."""
        threads = 1 if part == EMBEDDINGS else self.threads_for(rows)
        if (part, threads) not in self.sessions:
            embeds = part == EMBEDDINGS
            write = self.segments.embed if embeds else partial(self.segments.layers, self.parts[part])
            self.sessions[part, threads] = open_session(write, threads)
        return self.sessions[part, threads]

    def threads_for(self, rows: int) -> int:
        """Of a session that is to run so many rows: alone, a row uses all."""
        return self.threads if rows == 1 else 1

    def on_all_cores(self, run: Callable[[Any], Any], rows: Sequence[Any]) -> list[Any]:
        """`run` on every row; the workers take the next row as they become free."""
        if len(rows) == 1 or self.threads == 1:
            return [run(row) for row in rows]
        done: list[Any] = [None] * len(rows)
        left = iter(range(len(rows)))

        def work() -> None:
            for place in left:
                done[place] = run(rows[place])

        for worker in [self.workers.submit(work) for _ in range(min(self.threads, len(rows)))]:
            worker.result()
        return done


def in_parts(model: MultiExitModel, layers: Sequence[int]) -> list[list[int]]:
    """Layers in as few sessions as the size of a graph allows: each has threads of its own to be woken."""
    most = max(1, GRAPH_BYTES // (4 * weights_of_layer(model)))
    return [list(layers[start : start + most]) for start in range(0, len(layers), most)]
