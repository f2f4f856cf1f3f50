"""A service for the page whose exits say what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from offramp.errors import OfframpError
from offramp.policies import Confidence, Fixed, Patience, Policy
from offramp.serving.answers import Answer, ExitSaid, OperatingPoint
from offramp.serving.settings import Settings
from tests.serving.http_server import serving, settings_of

PROMISE = "at most {} % of accuracy is lost, with 95 % confidence"
RISKS = {0.005: 0.001, 0.01: 0.004, 0.02: 0.012, 0.05: 0.031, 0.1: 0.068}


def certified(limit: float, policy: Policy, layers: float, depth: int, name: str | None = None) -> OperatingPoint:
    score = 0.912 - RISKS[limit]
    expected = {"risk": RISKS[limit], "mean_layers": layers, "speed_up": depth / layers, "cost": layers / depth}
    expected |= {"score": score, "full_score": 0.912, "agreement": 1 - 2 * RISKS[limit]}
    return OperatingPoint(policy, name or f"max_loss={limit:g}", PROMISE.format(f"{100 * limit:g}"), limit, expected)


@dataclass
class Points:
    """The operating points of a made-up server."""

    default: OperatingPoint
    full_depth: OperatingPoint
    menu: Sequence[OperatingPoint] = ()
    forbidden: str = ""

    def choose(self, *, max_loss: float | None = None, full_depth: bool = False) -> OperatingPoint:
        if (max_loss is not None and self.forbidden == "max_loss") or (full_depth and self.forbidden == "full_depth"):
            raise OfframpError("not taken here")
        return self.default


def points_of(depth: int, kind: str = "calibrated") -> Points:
    """`calibrated` has a menu, `uncalibrated` full depth only, `own` a policy that nothing is known of."""
    expected = {"risk": 0.0, "mean_layers": float(depth), "speed_up": 1.0, "cost": 1.0, "agreement": 1.0}
    full = OperatingPoint(Fixed(depth), "full depth", "the model's own answer", 0.0, expected)
    if kind == "uncalibrated":
        return Points(full, full)
    if kind == "own":
        return Points(OperatingPoint(Patience(2, 0.3), "patience(2, tolerance=0.3)"), full)
    sure = {0.005: 0.99, 0.01: 0.95, 0.02: 0.9, 0.05: 0.8, 0.1: 0.6}
    menu = [certified(limit, Confidence(at), depth * (0.2 + 0.6 * at**8), depth) for limit, at in sure.items()]
    return Points(replace(menu[1], name="calibrated"), full, menu)


def grows_sure(text: str, depth: int, labels: int) -> np.ndarray[Any, Any]:
    """(exits, labels): surer with each layer, of the second label; a text with a "but" in it turns to the first."""
    layers = np.arange(1, depth + 1)
    logits = np.zeros((depth, labels), dtype=np.float32)
    logits[:, 1 % labels] = 1.2 * layers
    if "but" in text:
        logits[:, 1 % labels] = np.minimum(1.0 + 0.2 * layers, 2.0)
        logits[:, 0] = 0.35 * layers
    return logits


def comes_near(text: str, depth: int, labels: int) -> np.ndarray[Any, Any]:
    """(exits, 1): numbers that settle at 3.4."""
    return (3.4 - 2.5 * np.exp(-np.arange(depth) / 2))[:, None].astype(np.float32)


@dataclass
class StubService:
    """Says what `says` does, and counts as a server would."""

    layers: int = 12
    labels: Sequence[str] = ("negative", "positive")
    name: str = "sst2-reviews"
    regression: bool = False
    points: Any = None
    says: Callable[[str, int, int], Any] = grows_sure
    exits: dict[int, int] = field(default_factory=dict)
    per_second: list[int] = field(default_factory=lambda: [0] * 60)
    agreement: dict[str, Any] = field(
        default_factory=lambda: {"audited": 0, "agreed": 0, "share": None, "promised": None, "below_promise": False}
    )
    folder: str = ""
    asked: list[Any] = field(default_factory=list)
    raises: Exception | None = None
    error: str | None = None
    deadlines: list[float] = field(default_factory=list)
    looks: int = 0
    """How often the page asked how the server is doing."""

    def __post_init__(self) -> None:
        self.points = self.points or points_of(self.layers)
        kind = "regression" if self.regression else "classification"
        self.model = SimpleNamespace(
            exits=SimpleNamespace(layers=list(range(1, self.layers + 1))),
            objective=SimpleNamespace(name=kind),
            name_or_path=self.folder,
            outputs=max(1, len(self.labels)),
            config=SimpleNamespace(id2label=dict(enumerate(self.labels))),
        )
        self.metrics = SimpleNamespace(count_request=lambda outcome: None)
        self.ready = True

    async def start(self) -> None:
        """It is always ready."""

    async def drain(self, timeout_s: float) -> bool:
        return True

    def info(self) -> dict[str, Any]:
        facts = {"name": self.name, "family": "bert", "layers": self.layers, "labels": list(self.labels)}
        return facts | {"device": "cpu", "precision": "fp32", "backend": "onnx", "max_tokens": 128, "version": "0.1.0"}

    def said(self, text: Any) -> list[ExitSaid]:
        logits = self.says(text if isinstance(text, str) else " ".join(text), self.layers, len(self.labels))
        if self.regression:
            return [ExitSaid(at, float(row[0]), (), None, tuple(row.tolist())) for at, row in enumerate(logits, 1)]
        scores = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        return [
            ExitSaid(at, self.labels[row.argmax()], tuple(row.tolist()), float(row.max()), tuple(raw.tolist()))
            for at, (row, raw) in enumerate(zip(scores, logits, strict=True), 1)
        ]

    async def answer(self, texts: Sequence[Any], point: OperatingPoint, deadline_s: float) -> list[Answer]:
        if self.raises:
            raise self.raises
        self.deadlines.append(deadline_s)
        self.asked.append((texts[0], point))
        self.exits[1] = self.exits.get(1, 0) + 1
        self.per_second[-1] += 1
        tokens = min(128, sum(len(str(text).split()) for text in texts) + 2)
        return [Answer("", None, (), (), 1, self.layers, point, tokens, 0.0002, 0.0004, 0.0031, self.error)]

    async def trace(self, text: Any, deadline_s: float) -> list[ExitSaid]:
        self.deadlines.append(deadline_s)
        return self.said(text)

    def stats(self) -> dict[str, Any]:
        self.looks += 1
        answered = sum(self.exits.values())
        mean = sum(layer * count for layer, count in self.exits.items()) / answered if answered else None
        return {
            "exits": self.exits,
            "answered": answered,
            "per_second": self.per_second,
            "rate": sum(self.per_second) / 60,
            "mean_layers": mean,
            "layers_saved": None if mean is None else 1 - mean / self.layers,
            "queue": 0,
            "agreement": self.agreement,
        }


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """The address of a server around a service, under some settings."""
    with ExitStack() as running:
        yield lambda service, **more: running.enter_context(serving(made_up(**more), service))


def made_up(**settings: Any) -> Settings:
    return settings_of(Path("made up"), **settings)
