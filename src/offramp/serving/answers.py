"""What passes between the server's parts: operating points, answers, and why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offramp.policies import Policy


@dataclass(frozen=True)
class OperatingPoint:
    """A policy that requests can run under, and what is known of it."""

    policy: Policy
    name: str
    """`calibrated`, `full depth`, `max_loss=0.02`, or the policy as text."""
    promise: str | None = None
    """Such as "at most 1 % of accuracy is lost, with 95 % confidence"; None where nothing is promised."""
    limit: float | None = None
    """The largest loss that is promised, as a fraction."""
    expected: Mapping[str, float] = field(default_factory=dict)
    """mean_layers, speed_up, score, risk … as measured when it was calibrated."""
    least_agreement: float | None = None
    """The share of answers equal to full depth's below which the promise is in doubt; None where nobody can say."""
    audited: bool = False
    """Whether a share of its answers is compared with full depth's: the server's own points are, others are not."""


@dataclass(frozen=True)
class Answer:
    """The answer to one text."""

    label: str | float | None
    """The label, or the number in regression; None where the text could not be answered."""
    score: float | None
    """The label's probability at the exit; None in regression."""
    scores: tuple[float, ...]
    """The probability of every label, in the order of the model's outputs; none in regression."""
    logits: tuple[float, ...]
    exit_layer: int | None
    """Left after this layer …"""
    layers: int
    """… of so many."""
    point: OperatingPoint
    tokens: int
    queued_s: float
    """From being accepted to being computed, less the time it took to tokenise."""
    tokenise_s: float
    inference_s: float
    error: str | None = None
    """Why this text has no answer; the others of the request are fine."""


@dataclass(frozen=True)
class ExitSaid:
    """What one exit says to a text."""

    layer: int
    """1-based."""
    label: str | float
    scores: tuple[float, ...]
    confidence: float | None
    """The largest probability; None in regression."""
    logits: tuple[float, ...]
    """As the exit gave them: the page asks every operating point about them."""


class Overloaded(Exception):
    """The queue is full, or too long for the deadline: come back later."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the server is busy: try again in {retry_after:.1f} seconds")
        self.retry_after = retry_after


class TooLate(Exception):
    """The deadline passed before there was an answer."""


class Closing(Exception):
    """The server takes no more requests: it is starting, or shutting down."""
