"""A share of the answers is compared with full depth's, and a drop is said once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offramp
from offramp.engine import Engine
from offramp.engine.waves import Route
from offramp.policies import Fixed
from offramp.serving.answers import OperatingPoint
from offramp.serving.audit import Agreement, Audit
from offramp.serving.jobs import Job
from offramp.serving.metrics import Metrics
from offramp.tasks.encoding import Row
from tests.generated import reviews
from tests.prediction.models import model_folder
from tests.serving.services import Held, serving, until
from tests.tiny import tiny_model

TEXTS = [text for text, _ in reviews(60)]
POINT = OperatingPoint(Fixed(2), "calibrated", "a promise", 0.01, {}, least_agreement=0.9, audited=True)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_agreement_is_that_with_full_depth(tmp_path: Path, backend: str) -> None:
    folder = model_folder(tmp_path / "model", ("bad", "good", "so-so"))
    early, full = (Engine(str(folder), policy)(TEXTS) for policy in ("entropy(0.6131)", "fixed(5)"))
    same = sum(one.label == other.label for one, other in zip(early, full, strict=True))
    assert 0 < same < len(TEXTS)

    async def ask() -> dict[str, Any]:
        async with serving(folder, policy="entropy(0.6131)", backend=backend, audit=1.0) as service:
            await service.answer(TEXTS)
            await service.answer(TEXTS[:5], service.points.full_depth)  # nothing to compare
            await service.answer(TEXTS[:5], service.points.choose(policy="fixed(1)"))  # not the server's own
            await until(lambda: service.stats()["agreement"]["audited"] == len(TEXTS))
            await asyncio.sleep(0.05)
            stats = service.stats()
            assert stats["answered"] == len(TEXTS) + 10, "audits are not traffic"
            text = service.metrics.text().decode()
            assert f'offramp_audited_total{{point="entropy(0.6131)"}} {len(TEXTS)}.0' in text
            assert f'offramp_agreed_total{{point="entropy(0.6131)"}} {same}.0' in text
            return dict(stats["agreement"])

    share = same / len(TEXTS)
    assert asyncio.run(ask()) == {
        "audited": len(TEXTS),
        "agreed": same,
        "share": pytest.approx(share),
        "promised": None,
        "below_promise": False,
    }


def test_audits_wait_for_idle_time(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", ("bad", "good"))

    async def ask() -> None:
        async with serving(folder, policy="fixed(1)", audit=1.0) as service:
            held = Held(service)
            first = asyncio.create_task(service.answer(TEXTS[:4]))
            await held.until_it_begins()
            others = asyncio.create_task(service.answer(TEXTS))
            await asyncio.sleep(0.5)
            held.go.set()
            await first
            await others
            assert held.rows <= 4 + len(TEXTS) + 5
            await until(lambda: service.stats()["agreement"]["audited"] == 4 + len(TEXTS))
            assert held.rows == (4 + len(TEXTS)) * 6

    asyncio.run(ask())


def audit_of(share: float = 1.0, tolerance: float | None = None, labels: int = 3, seed: int = 0) -> Audit:
    model = tiny_model(num_labels=labels)
    return Audit(model, Route(model, Fixed(4)), Metrics([1, 2, 3, 4], lambda: 0), share, tolerance, seed)


def job_with(logits: list[float], exit: int = 1) -> Job:
    return Job(0, Row([5, 6]), None, exit=exit, logits=np.array(logits, np.float32))  # type: ignore[arg-type]


def test_only_a_share_is_audited() -> None:
    audit = audit_of(share=0.1)
    picked = [audit.consider(job_with([1, 0, 0]), POINT) for _ in range(5000)]
    assert 400 < sum(one is not None for one in picked) < 600
    other = OperatingPoint(Fixed(2), "fixed(2)")
    assert audit_of().consider(job_with([1, 0, 0]), other) is None
    assert audit_of(share=0.0).consider(job_with([1, 0, 0]), POINT) is None


def finished(again: Job | None, agrees: bool) -> Job:
    assert again is not None
    again.finish(3, np.array([1, 0, 0] if agrees else [0, 1, 0], np.float32))
    return again


def test_who_left_last_agrees_without_being_run_again() -> None:
    audit = audit_of()
    for _ in range(3):
        assert audit.consider(job_with([1, 0, 0], exit=3), POINT) is None
    assert audit.of(POINT).audited == 0, "they are counted with the next that left early"
    audit.compare(finished(audit.consider(job_with([1, 0, 0]), POINT), agrees=False))
    assert (audit.of(POINT).audited, audit.of(POINT).agreed) == (4, 3)


def test_a_busy_server_looks_no_better_than_it_is() -> None:
    """Of ten answers four leave early, and two of these are not full depth's; nine of ten audits are forgotten."""
    audit, draw = audit_of(), np.random.default_rng(0)
    for _ in range(100):
        idle: deque[Job] = deque(maxlen=4)
        for exit in np.where(draw.random(100) < 0.4, 1, 3):
            again = audit.consider(job_with([1, 0, 0], exit=int(exit)), POINT)
            if again is not None:
                idle.append(again)
        for job in idle:
            audit.compare(finished(job, agrees=bool(draw.random() < 0.5)))
    assert 800 < audit.of(POINT).audited < 1200
    assert audit.of(POINT).share == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("early", "full", "same"), [(1.0, 1.4, True), (1.0, 1.6, False)])
def test_numbers_agree_within_the_tolerance(early: float, full: float, same: bool) -> None:
    audit = audit_of(tolerance=0.5, labels=1)
    again = audit.consider(job_with([early]), POINT)
    assert again is not None
    again.finish(3, np.array([full], np.float32))
    audit.compare(again)
    assert audit.of(POINT).agreed == same


def test_numbers_without_a_tolerance_are_not_audited() -> None:
    assert audit_of(labels=1).consider(job_with([1.0]), POINT) is None


def test_a_drop_below_the_promise_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    audit = audit_of()
    draw = np.random.default_rng(0)

    def run(agreement: float, count: int) -> None:
        for agrees in draw.random(count) < agreement:
            again = audit.consider(job_with([1, 0, 0]), POINT)
            assert again is not None
            again.finish(3, np.array([1, 0, 0] if agrees else [0, 1, 0], np.float32))
            audit.compare(again)

    with caplog.at_level(logging.WARNING):
        run(0.93, 3000)
        assert not caplog.records
        assert not audit.stats(POINT)["below_promise"]
        run(0.7, 1000)
        assert audit.stats(POINT)["below_promise"]
        [said] = caplog.records
        assert "at least 90.0% are expected (a promise)" in said.getMessage()
        run(0.7, 500)
        assert len(caplog.records) == 1
        run(0.99, 1000)
        assert not audit.stats(POINT)["below_promise"]
    assert b'offramp_below_promise{point="calibrated"} 0.0' in audit.metrics.text()
    assert b'offramp_agreement_promised{point="calibrated"} 0.9' in audit.metrics.text()


def test_a_few_that_differ_are_no_drop() -> None:
    found = Agreement(0.99)
    assert not any(found.add(agrees) for agrees in [True, True, False, True])
    assert found.share == 0.75
    assert any(found.add(False) for _ in range(5))


def test_an_endless_stream_raises_no_alarm_by_chance() -> None:
    """A test of the last thousand at one in a thousand, asked again with each answer, would say so in many of these."""
    draw = np.random.default_rng(2)
    found = [Agreement(0.9) for _ in range(20)]
    assert not any(one.add(bool(agrees)) for one in found for agrees in draw.random(20_000) < 0.9)
    assert all(any(one.add(bool(agrees)) for agrees in draw.random(2000) < 0.75) for one in found)


def test_a_promise_is_read_from_the_model_folder(tmp_path: Path) -> None:
    from tests.serving.test_operating_points import calibrate

    folder = model_folder(tmp_path / "model")
    model = calibrate(folder)

    async def ask() -> None:
        async with serving(offramp.load(folder), audit=1.0) as service:
            assert service.stats()["agreement"]["promised"] == pytest.approx(0.97)

    asyncio.run(ask())
    assert model.name_or_path
