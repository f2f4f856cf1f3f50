"""What Prometheus is told is what has happened."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from offramp import OfframpError
from offramp.engine import Engine
from offramp.serving.metrics import OUTCOMES, Metrics
from offramp.serving.traffic import Traffic
from tests.generated import reviews
from tests.prediction.models import model_folder
from tests.serving.services import serving

TEXTS = [text for text, _ in reviews(30)]


def values(metrics: Metrics) -> dict[tuple[str, str], float]:
    """By name and the value of the one label."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_every_answer_is_counted(tmp_path: Path, backend: str) -> None:
    folder = model_folder(tmp_path / "model", ("bad", "good", "so-so"))
    exits = [answer.exit_layer for answer in Engine(str(folder), "entropy(0.6131)")(TEXTS)]

    async def ask() -> dict[tuple[str, str], float]:
        async with serving(folder, policy="entropy(0.6131)", backend=backend) as service:
            await service.answer(TEXTS)
            await service.answer(["\ud800"])
            return values(service.metrics)

    found = asyncio.run(ask())
    for layer in range(1, 6):
        assert found["offramp_exits_total", str(layer)] == exits.count(layer)
    assert found["offramp_layers_run_total", ""] == sum(layer for layer in exits if layer)
    assert found["offramp_layers_saved_total", ""] == sum(5 - layer for layer in exits if layer)
    assert found["offramp_inference_seconds_count", ""] == found["offramp_queue_seconds_count", ""] == len(TEXTS)
    assert found["offramp_tokenise_seconds_count", ""] == 2
    assert found["offramp_failed_texts_total", ""] == 1
    assert found["offramp_queue_rows", ""] == 0
    rows, batches = found["offramp_batch_rows_sum", ""], found["offramp_batch_rows_count", ""]
    assert (rows, batches) == (30, 30) if backend == "onnx" else rows > batches
    assert found["offramp_batch_tokens_sum", ""] > rows


def test_requests_are_counted_by_outcome() -> None:
    metrics = Metrics([1, 2], lambda: 7)
    for outcome in OUTCOMES:
        metrics.count_request(outcome)
    metrics.count_request("ok")
    found = values(metrics)
    assert found["offramp_requests_total", "ok"] == 2
    assert found["offramp_requests_total", "too_late"] == 1
    assert found["offramp_queue_rows", ""] == 7
    assert found["process_resident_memory_bytes", ""] > 1e6


def test_services_do_not_share_a_registry() -> None:
    one, other = Metrics([1], lambda: 0), Metrics([1], lambda: 0)
    one.count_request("ok")
    assert values(other)["offramp_requests_total", "ok"] == 0
    assert not [family for family in REGISTRY.collect() if family.name.startswith("offramp")]


def test_what_brings_the_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(OfframpError, match=r"pip install 'offramp\[serve\]'"):
        Metrics([1], lambda: 0)


def test_traffic_of_the_last_minute() -> None:
    now = 1000.3
    traffic = Traffic(12, lambda: now)
    assert (traffic.answered, traffic.mean_layers, traffic.saved) == (0, None, None)
    traffic.add(3)
    traffic.add(12)
    now += 2
    traffic.add(3)
    assert traffic.per_second()[-3:] == [2, 0, 1]
    assert len(traffic.per_second()) == 60
    assert (traffic.answered, traffic.mean_layers, traffic.saved) == (3, 6.0, 0.5)
    now += 58
    assert traffic.per_second() == [0, 1, *[0] * 58]
    now += 1
    assert traffic.per_second() == [1, *[0] * 59]
    now += 500
    assert not any(traffic.per_second())
    assert traffic.answered == 3
