"""Layers in ONNX Runtime, fp32 or int8: rows one at a time, several of them at once on as many cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offramp.engine.host_runner import Layers, padded_logits
from offramp.engine.onnx.segments import NO_EXIT, FusedSegments, array
from offramp.engine.onnx.sessions import open_session
from offramp.engine.runner import Packed
from offramp.errors import OfframpError, one_line
from offramp.models import MultiExitModel

Array = NDArray[np.float32]
EMBEDDINGS = -1
ONLY_HIDDEN = ["after"]
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
        self.exits: Any = model.exits
        self.spans = model.objective.name == "span"
        self.has_types = model.backbone.config.type_vocab_size > 1
        modules = [id(model.backbone.layer_module(index)) for index in range(model.backbone.depth)]
        self.alike = [np.array(modules.index(module)) for module in modules]
        """For each layer the first that has its weights."""
        self.parts = in_parts(model, sorted({int(first) for first in self.alike}))
        self.sessions: dict[tuple[int, int], Any] = {}
        self.number_of = {exit: np.array(exit) for exit in range(NO_EXIT, len(self.exits))}
        self.said: tuple[int, Any, Any] = (NO_EXIT, None, None)
        """An exit that was asked with its layer: its number, the layer's output, its logits."""
        try:
            self._session(EMBEDDINGS, rows=1)
        except OfframpError:
            raise
        except Exception as error:  # whatever a runtime that is not whole may raise
            raise OfframpError(f"ONNX Runtime cannot run this here ({one_line(error)}): use backend torch") from error

    @cached_property
    def workers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.threads, thread_name_prefix="offramp-rows")

    def embed(self, rows: Packed) -> list[Array]:
        cuts = rows.lengths.cumsum()[:-1]
        feeds = [{"input_ids": ids[None]} for ids in np.split(rows.input_ids, cuts)]
        if self.has_types:
            types = rows.token_type_ids if rows.token_type_ids is not None else np.zeros_like(rows.input_ids)
            for feed, kinds in zip(feeds, np.split(types, cuts), strict=True):
                feed["token_type_ids"] = kinds[None]
        session = self._session(EMBEDDINGS, len(rows))
        return self._map(lambda feed: session.run(None, feed)[0], feeds)

    def layer(self, index: int, hidden: Sequence[Array], then: int | None = None) -> list[Array]:
        which = self.alike[index]
        part = next(number for number, layers in enumerate(self.parts) if which in layers)
        session = self._session(part, len(hidden))
        if len(hidden) == 1 and then is not None:
            after, logits = session.run(None, {"hidden": hidden[0], "layer": which, "exit": self.number_of[then]})
            self.said = then, after, logits
            return [after]
        feed = {"layer": which, "exit": self.number_of[NO_EXIT]}
        return self._map(lambda row: session.run(ONLY_HIDDEN, {"hidden": row, **feed})[0], hidden)

    def exit(self, exit: int, hidden: Sequence[Array]) -> Tensor:
        asked, after, said = self.said
        if asked != exit or len(hidden) > 1 or hidden[0] is not after:
            said = self._head(exit, np.concatenate([row[0] for row in hidden]) if self.spans else self._pooled(hidden))
        logits = torch.from_numpy(said)
        return padded_logits(logits.split([row.shape[1] for row in hidden])) if self.spans else logits

    def _head(self, exit: int, pooled: Array) -> Array:
        """Pooler and classifier: (n, H) to (n, C)."""
        if self.exits.pooler_of:
            pooler = self.exits.poolers[str(self.exits.pooler_of[exit])]
            pooled = np.tanh(pooled @ array(pooler.weight).T + array(pooler.bias))
        classifier = self.exits.classifiers[str(self.exits.classifier_of[exit])]
        logits: Array = pooled @ array(classifier.weight).T + array(classifier.bias)
        return logits

    def is_sound(self, hidden: Array) -> bool:
        """Rounding to int8 turns NaN into a number, but a token that holds one keeps it: by what is added to it."""
        return not self.segments.int8 or bool(np.isfinite(hidden.sum()))

    def _pooled(self, hidden: Sequence[Array]) -> Array:
        """One vector a row: (n, H)."""
        if self.exits.pooling == ("first",):
            return hidden[0][:, 0] if len(hidden) == 1 else np.concatenate([row[:, 0] for row in hidden])
        rows = [torch.from_numpy(row) for row in hidden]
        marks = [torch.ones(row.shape[:2], dtype=torch.long) for row in rows]
        return torch.cat([self.exits.pool(row, mark) for row, mark in zip(rows, marks, strict=True)]).numpy()

    def _session(self, part: int, rows: int) -> Any:
        """Some of the layers, or the embeddings, made when they are first needed. Alone, a row uses all threads."""
        threads = self.threads if rows == 1 and part != EMBEDDINGS else 1
        if (part, threads) not in self.sessions:
            graph = self.segments.embed() if part == EMBEDDINGS else self.segments.layers(self.parts[part])
            self.sessions[part, threads] = open_session(graph, threads)
        return self.sessions[part, threads]

    def _map(self, run: Callable[[Any], Array], rows: Sequence[Any]) -> list[Array]:
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
    size = 4 * sum(weight.numel() for weight in model.backbone.layer_module(0).parameters())
    most = max(1, GRAPH_BYTES // size)
    return [list(layers[start : start + most]) for start in range(0, len(layers), most)]
