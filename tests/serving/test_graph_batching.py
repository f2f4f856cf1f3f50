"""The service on a GPU, CUDA graphs and torch side by side: the answers of both. Needs a CUDA device and Triton."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from offramp.engine import Engine
from offramp.serving.answers import Answer
from tests.engine.on_device import needs_device
from tests.generated import reviews
from tests.prediction.models import model_folder
from tests.serving.services import serving, until

TEXTS = [text for text, _ in reviews(120)]
POLICIES = ["entropy(0.6131)", "patience(2)", "fixed(5)"]


@needs_device
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_answers_on_a_gpu(family: str, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", ("bad", "good", "so-so"), family=family)
    how = {"device": "cuda", "precision": "fp32", "backend": "graphs"}

    async def ask() -> list[list[Answer]]:
        async with serving(folder, policy=POLICIES[0], audit=1.0, threads=None, **how) as service:
            points = [service.points.choose(policy=policy) for policy in POLICIES]
            asked = [service.answer([text], point) for text in TEXTS for point in points]
            answers = await asyncio.gather(*asked)
            await until(lambda: service.stats()["agreement"]["audited"] == len(TEXTS))
            assert [exit.layer for exit in await service.trace("good")] == [1, 2, 3, 4, 5]
            return answers

    answers = asyncio.run(ask())
    for place, policy in enumerate(POLICIES):
        for [answer], right in zip(answers[place :: len(POLICIES)], Engine(str(folder), policy)(TEXTS), strict=True):
            assert (answer.error, answer.label, answer.exit_layer) == (None, right.label, right.exit_layer)
            assert answer.scores == pytest.approx(right.scores, abs=1e-3)
