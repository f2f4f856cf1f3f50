"""What Prometheus is told, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from offramp.errors import needs

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 4096, 16384)
OUTCOMES = ("ok", "invalid", "too_large", "overloaded", "too_late", "closing", "cancelled", "failed")
"""How a request can end: counted by whoever takes requests, who sees all of them."""


class Metrics:
    """Counters and histograms of one service.

    Args:
        exit_layers: of the model, ascending.
        queue: tells how many rows have been accepted and not answered.
    """

    def __init__(self, exit_layers: Sequence[int], queue: Callable[[], float]) -> None:
        client = needs("prometheus_client", "serve")
        self.registry: Any = client.CollectorRegistry()
        self.content_type: str = client.CONTENT_TYPE_LATEST
        self._latest = client.generate_latest
        made = {"registry": self.registry}
        client.ProcessCollector(**made)
        requests = client.Counter("offramp_requests", "Requests by outcome", ["outcome"], **made)
        self._requests = {outcome: requests.labels(outcome) for outcome in OUTCOMES}
        client.Gauge("offramp_queue_rows", "Rows accepted and not yet answered", **made).set_function(queue)
        self.queued = client.Histogram(
            "offramp_queue_seconds", "From accepting a text to computing it, less tokenising", buckets=SECONDS, **made
        )
        self.tokenise = client.Histogram(
            "offramp_tokenise_seconds", "Of the texts that are tokenised together", buckets=SECONDS, **made
        )
        self.inference = client.Histogram(
            "offramp_inference_seconds", "Of a text, from its first layer to its exit", buckets=SECONDS, **made
        )
        self.batch_rows = client.Histogram("offramp_batch_rows", "Rows computed together", buckets=ROWS, **made)
        self.batch_tokens = client.Histogram("offramp_batch_tokens", "Tokens computed together", buckets=TOKENS, **made)
        exits = client.Counter("offramp_exits", "Texts answered, by the layer they left after", ["layer"], **made)
        self._exits = {layer: exits.labels(str(layer)) for layer in sorted(set(exit_layers))}
        self.failed_texts = client.Counter("offramp_failed_texts", "Texts that could not be answered", **made)
        self.layers_run = client.Counter("offramp_layers_run", "Layers computed for answered texts", **made)
        self.layers_saved = client.Counter("offramp_layers_saved", "Layers that answered texts did not need", **made)
        points = {"labelnames": ["point"], **made}
        self.audited = client.Counter("offramp_audited", "Answers compared with full depth's", **points)
        self.agreed = client.Counter("offramp_agreed", "Of these, those that are the same", **points)
        self.agreement = client.Gauge("offramp_agreement", "Share of the same among the last audited", **points)
        self.promised = client.Gauge("offramp_agreement_promised", "Below it, the promise is in doubt", **points)
        self.below = client.Gauge("offramp_below_promise", "1 where agreement is below what was promised", **points)

    def text(self) -> bytes:
        """What `/metrics` answers."""
        text: bytes = self._latest(self.registry)
        return text

    def count_request(self, outcome: str) -> None:
        """One request more that ended so (see `OUTCOMES`)."""
        self._requests[outcome].inc()

    def on_batch(self, rows: int, tokens: int) -> None:
        self.batch_rows.observe(rows)
        self.batch_tokens.observe(tokens)

    def on_answer(self, exit_layer: int, depth: int, queued_s: float, inference_s: float) -> None:
        self._exits[exit_layer].inc()
        self.layers_run.inc(exit_layer)
        self.layers_saved.inc(depth - exit_layer)
        self.queued.observe(queued_s)
        self.inference.observe(inference_s)
