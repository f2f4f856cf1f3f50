"""The engine: texts in, answers out in their order, each text computed as far as its policy lets it go."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from offramp.engine.backends import choose, make_runner, torch_at_work
from offramp.engine.feeding import BatchSize, Encode, Feed, Window, make_window
from offramp.engine.policy_choice import policy_for
from offramp.engine.runner import Finished, Runner
from offramp.engine.texts import Text, checked_rows, encode_texts
from offramp.errors import OfframpError
from offramp.interop import load
from offramp.models import MultiExitModel
from offramp.models.modes import answering
from offramp.policies import Policy
from offramp.tasks.encoding import Row, TextEncoder, text_encoder

logger = logging.getLogger(__name__)

TOKENS = {"graphs": 16384}
"""In a batch, by backend."""
USUAL_TOKENS = 4096
WINDOW = {"graphs": 8192, "torch": 256, "onnx": 64}
"""Texts read and sorted by length together, by backend. Sorting saves padding, and where rows are run alone nothing."""
BATCHES = 32
"""In a window, where the size of batches was asked for."""
HELD = 4
"""Windows whose answers may be waited for before rows that are held back are finished: memory stays flat."""


class Prediction(NamedTuple):
    """The answer to one text."""

    label: str | float | None
    """The label, or the number in regression; None where the text could not be answered."""
    score: float | None
    """The label's probability at the exit; None in regression."""
    exit_layer: int | None
    scores: tuple[float, ...] = ()
    """The probability of every label, in the order of the model's outputs; none in regression."""
    error: str | None = None
    """Why there is no answer."""


class RowAnswer(NamedTuple):
    """What one row left with."""

    logits: NDArray[np.float32] | None
    """(C,) or, for spans, (T, 2); of a recording engine every exit's, (E, C) or (E, T, 2)."""
    exit: int | None
    """0-based."""
    exit_layer: int | None
    error: str | None = None


class Engine:
    """Runs a model under a policy as fast as the machine allows, with the answers of the plain forward pass.

    Args:
        model: a model, or what `offramp.load` opens. Weights that change later may, or may not, be seen.
        policy: when to leave; default: the one in the model's folder or, where there is none, full depth.
        device: `auto` is the GPU where there is one.
        precision: `fp32`, `bf16`, `fp16` (GPU) or `int8` (CPU); `auto` is bf16 on a GPU and fp32 on a CPU.
        backend: `graphs` (CUDA graphs over packed rows), `onnx` (ONNX Runtime, CPU) or `torch`; `auto` is the fastest
            that can run the model.
        max_length: cut texts to so many tokens; default: as in training.
        batch_size: texts handed over together; default: as many as is best.
        threads: of a CPU; default: torch's.
        label_names: in the order of the model's outputs; default: those stored in the model.
        record: ask every exit about every row, and let none leave before the last (for `answer_rows`).

    >>> engine = Engine("runs/sst2", "entropy(0.1)")
    >>> engine(["a fine film"])
    [Prediction(label='1', score=0.98, exit_layer=3, scores=(0.02, 0.98), error=None)]
    """

    def __init__(
        self,
        model: MultiExitModel | str | Path,
        policy: Policy | str | None = None,
        device: str = "auto",
        precision: str = "auto",
        backend: str = "auto",
        *,
        max_length: int | None = None,
        batch_size: int | None = None,
        threads: int | None = None,
        tokenizer: Any = None,
        label_names: Sequence[str] | None = None,
        record: bool = False,
    ) -> None:
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise OfframpError(f"batch size must be a whole number, 1 or more, not {batch_size}")
        self.model = model if isinstance(model, MultiExitModel) else load(model)
        self.policy = policy_for(self.model, policy)
        self.setting = choose(self.model, device, precision, backend, threads)
        self.runner = self._make_runner(record, may_fall_back=backend == "auto")
        self.size = BatchSize(TOKENS.get(self.setting.backend, USUAL_TOKENS), batch_size)
        self.window = min(WINDOW[self.setting.backend], BATCHES * batch_size if batch_size else WINDOW["graphs"])
        self.label_names = names_of_labels(self.model, label_names)
        self._encoder: TextEncoder | Callable[[], TextEncoder] = partial(
            text_encoder, self.model, max_length, tokenizer
        )
        self.record = record
        self._busy = False
        self.cut = 0
        """Texts so far that have as many tokens as are taken, or more: what is beyond is not seen."""
        if max_length is not None or tokenizer is not None:
            self.encoder  # noqa: B018 - a wrong length is refused now, not at the first text

    def _make_runner(self, record: bool, may_fall_back: bool) -> Runner:
        try:
            return make_runner(self.model, self.policy, self.setting, record=record)
        except OfframpError as error:
            if not may_fall_back or self.setting.backend == "torch":
                raise
            logger.warning(f"backend {self.setting.backend} failed ({error}): going on with torch")
            self.setting = replace(self.setting, backend="torch")
            return make_runner(self.model, self.policy, self.setting, record=record)

    @property
    def encoder(self) -> TextEncoder:
        """Texts to tokens: the model's own tokenizer, looked for when the first text comes."""
        if not isinstance(self._encoder, TextEncoder):
            self._encoder = self._encoder()
        return self._encoder

    def __call__(self, texts: Iterable[Text]) -> list[Prediction]:
        """Answers in the order of the texts."""
        return list(self.stream(texts))

    def stream(self, texts: Iterable[Text]) -> Generator[Prediction, None, None]:
        """Answers as they come, in the order of the texts; reads ahead a little, and holds no more than that.

        The texts are read in another thread.
        """
        if isinstance(texts, str):
            raise OfframpError("the engine takes a list of texts: write [text]")
        if self.record:
            raise OfframpError("an engine that records says what every exit says of rows: use answer_rows")
        if self.model.objective.name == "span":
            raise OfframpError("this model answers questions with spans: use SpanPredictor, or offramp.predict")
        answers = self._answers(texts, self._encode)
        return (self._prediction(answer) for answer in answers)

    def _encode(self, texts: Sequence[Any]) -> list[Row | str]:
        rows = encode_texts(self.encoder, self.model.backbone, texts)
        self.cut += sum(len(row) >= self.encoder.max_length for row in rows if isinstance(row, Row))
        return rows

    def answer_rows(self, rows: Iterable[Row]) -> Iterator[RowAnswer]:
        """What rows of tokens leave with, in their order, whatever the model is asked."""
        return self._answers(rows, partial(checked_rows, self.model.backbone))

    def _answers(self, items: Iterable[Any], encode: Encode) -> Iterator[RowAnswer]:
        if self._busy:
            raise OfframpError("the engine is answering already: finish that stream first, or make a second engine")
        self._busy, finished = True, False
        try:
            if isinstance(items, Sequence) and len(items) <= self.window:
                yield from self._at_once(items, encode)
            else:
                yield from self._streamed(items, encode)
            finished = True
        finally:
            self._busy = False
            if not finished:
                self.runner.drop()  # given up, or failed somewhere: its rows are nobody's

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """The model without dropout, and torch as the engine wants it; afterwards both as they were.

        Never while an answer is handed out: between two of them torch and the model are the caller's.
        """
        if self.setting.backend == "onnx":  # which has graphs of its own
            yield
            return
        with answering(self.model), torch_at_work(self.setting) if self.setting.backend == "torch" else nullcontext():
            yield

    def _at_once(self, items: Sequence[Any], encode: Encode) -> Iterator[RowAnswer]:
        """A list that fits into one window: no threads, no waiting."""
        window = make_window(0, items, encode, self.size)
        found = self._errors(window)
        with self._at_work():
            for batch in window.batches:
                self._collect(self.runner.submit(batch), found)
            self._collect(self.runner.flush(), found)
        return (found[ticket] for ticket in range(len(items)))

    def _streamed(self, items: Iterable[Any], encode: Encode) -> Iterator[RowAnswer]:
        found: dict[int, RowAnswer] = {}
        given = 0

        def in_order() -> Iterator[RowAnswer]:
            nonlocal given
            while given in found:
                yield found.pop(given)
                given += 1

        feed = Feed(items, encode, self.size, self.window)
        try:
            while True:
                if (window := feed.next_at_once()) is None:
                    with self._at_work():
                        self._collect(self.runner.flush(), found)  # nobody knows when more will come
                    yield from in_order()
                    if (window := feed.next()) is None:
                        return
                found |= self._errors(window)
                with self._at_work():
                    for batch in window.batches:
                        self._collect(self.runner.submit(batch), found)
                    if window.first + window.items - given > HELD * self.window:
                        self._collect(self.runner.flush(), found)
                yield from in_order()
        finally:
            feed.close()

    @staticmethod
    def _errors(window: Window) -> dict[int, RowAnswer]:
        return {ticket: RowAnswer(None, None, None, error) for ticket, error in window.errors.items()}

    def _collect(self, finished: Iterable[Finished], found: dict[int, RowAnswer]) -> None:
        layers = self.model.exits.layers
        for part in finished:
            for ticket, exit, logits in zip(part.tickets.tolist(), part.exits.tolist(), part.logits, strict=True):
                if np.isfinite(logits).all():
                    found[ticket] = RowAnswer(logits, exit, layers[exit])
                else:
                    found[ticket] = RowAnswer(None, None, None, "the model's answer is not a number (NaN)")

    def _prediction(self, answer: RowAnswer) -> Prediction:
        if answer.logits is None:
            return Prediction(None, None, None, error=answer.error)
        if self.model.objective.name == "regression":
            return Prediction(float(answer.logits[0]), None, answer.exit_layer)
        scores = torch.from_numpy(answer.logits).softmax(-1).tolist()
        best = int(np.argmax(answer.logits))
        return Prediction(self.label_names[best], scores[best], answer.exit_layer, tuple(scores))


def names_of_labels(model: MultiExitModel, given: Sequence[str] | None) -> list[str]:
    """As given, or as the model has them, or their numbers; one for each output."""
    if model.objective.name != "classification":
        return []
    if isinstance(given, str):
        raise OfframpError(f"label names {given!r}: give a list, one for each of {model.outputs} outputs")
    if given is not None:
        if len(given) != model.outputs:
            raise OfframpError(
                f"{len(given)} label names, but the model has {model.outputs} outputs: give one for each"
            )
        return list(given)
    stored = [name for _, name in sorted((model.config.id2label or {}).items(), key=lambda named: int(named[0]))]
    return stored if len(stored) == model.outputs else list(map(str, range(model.outputs)))
