"""The service's answers are the engine's; and what it does when it is full, late, cancelled, broken or closing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp import OfframpError
from offramp.engine import Engine, Text
from offramp.serving.answers import Answer, Closing, Overloaded, TooLate
from offramp.serving.service import Service
from tests.generated import reviews
from tests.prediction.models import model_folder
from tests.serving.services import Held, serving, until

LABELS = ("bad", "good", "so-so")
TEXTS: list[Text] = [text for text, _ in reviews(40)] + [("the plot", "is good"), "good " * 60]
ENTROPY = "entropy(0.6131)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "tiny", LABELS)


@pytest.fixture(scope="module")
def number_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("models") / "number", ())


def check(answers: list[Answer], engine: Engine, texts: list[Text]) -> None:
    for answer, right in zip(answers, engine(texts), strict=True):
        assert answer.error is None
        assert (answer.exit_layer, answer.layers) == (right.exit_layer, 5)
        if right.score is None:
            assert answer.label == pytest.approx(right.label, abs=1e-4)
            assert (answer.score, answer.scores) == (None, ())
        else:
            assert answer.label == right.label
            assert answer.score == pytest.approx(right.score, abs=1e-4)
            assert answer.scores == pytest.approx(right.scores, abs=1e-4)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_answers_are_the_engines_under_many_policies_at_once(family: str, backend: str, tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", LABELS, family=family)
    policies = [None, "patience(2)", "confidence(0.5)", "window(2)", "fixed(3)"]

    async def ask() -> list[list[Answer]]:
        async with serving(folder, policy=ENTROPY, backend=backend, threads=2) as service:
            points = [service.points.choose(policy=policy) for policy in policies]
            points.append(service.points.full_depth)
            requests = [service.answer([text], point) for text in TEXTS for point in points]
            return await asyncio.gather(*requests)

    answers = [answer for one in asyncio.run(ask()) for answer in one]
    for place, policy in enumerate([ENTROPY, *policies[1:], "fixed(5)"]):
        mine = answers[place :: len(policies) + 1]
        check(mine, Engine(str(folder), policy, "cpu", backend=backend), TEXTS)
        assert {answer.point.name for answer in mine} == {"full depth" if policy == "fixed(5)" else policy}


def test_several_texts_in_one_request_keep_their_order(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder, policy=ENTROPY) as service:
            check(await service.answer(TEXTS), Engine(str(folder), ENTROPY), TEXTS)
            assert await service.answer([]) == []

    asyncio.run(ask())


def test_regression_has_a_number_and_no_scores(number_folder: Path) -> None:
    async def ask() -> None:
        async with serving(number_folder, policy="patience(1, tolerance=0.5)") as service:
            check(await service.answer(TEXTS), Engine(str(number_folder), "patience(1, tolerance=0.5)"), TEXTS)
            assert service.info()["labels"] == []
            assert (await service.trace("good"))[0].confidence is None

    asyncio.run(ask())


def test_what_is_known_of_an_answer(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder, policy=ENTROPY) as service:
            [answer] = await service.answer(["a good film"])
            assert answer.tokens == 5
            assert answer.scores == pytest.approx(torch.tensor(answer.logits).softmax(-1).tolist(), abs=1e-6)
            assert answer.queued_s >= 0
            assert answer.tokenise_s > 0
            assert answer.inference_s > 0

    asyncio.run(ask())


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_waiting_is_told_from_computing(folder: Path, backend: str) -> None:
    async def ask() -> None:
        async with serving(folder, backend=backend, max_batch_tokens=1) as service:
            answers = await service.answer(TEXTS[:20])
        queued = [answer.queued_s for answer in answers]
        assert queued == sorted(queued)
        assert queued[-1] > 5 * min(answer.inference_s for answer in answers)

    asyncio.run(ask())


def test_a_bad_text_fails_alone(folder: Path) -> None:
    texts: list[Any] = ["good", "half \ud800", "bad", 3, ("a", "b"), "good " * 20]

    async def ask() -> None:
        async with serving(folder, policy=ENTROPY, max_length=20) as service:
            truncated = await service.answer(texts)
            whole = await service.answer(texts, truncate=False)
            assert service.flow.pending == 0
        assert [answer.error is None for answer in truncated] == [True, False, True, False, True, True]
        assert "half a character" in str(truncated[1].error)
        assert "expected a text" in str(truncated[3].error)
        assert [answer.error is None for answer in whole] == [True, False, True, False, True, False]
        assert "22 tokens, and the model takes 20" in str(whole[5].error)
        for one, other in zip(truncated[:5], whole[:5], strict=True):
            assert one.logits == pytest.approx(other.logits, abs=1e-5)

    asyncio.run(ask())


def test_a_tokenizer_that_chokes_on_one_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from offramp.serving import tokenising

    real = tokenising.encode_texts

    def choking(encoder: Any, backbone: Any, items: Any) -> Any:
        if "awful" in items:
            raise RuntimeError("choked")
        return real(encoder, backbone, items)

    async def ask() -> None:
        async with serving(folder, policy=ENTROPY) as service:
            monkeypatch.setattr(tokenising, "encode_texts", choking)
            good, bad, other = await service.answer(["good", "awful", "fine"])
        assert "choked" in str(bad.error)
        assert good.error is other.error is None

    asyncio.run(ask())


def test_a_poisonous_text_fails_alone(folder: Path) -> None:
    """A word whose embedding is not a number."""
    model = offramp.load(folder)
    with torch.no_grad():
        model.backbone.model.embeddings.word_embeddings.weight[5] = torch.nan  # "good"

    async def ask() -> None:
        async with serving(model, policy=ENTROPY) as service:
            answers = await service.answer(["bad", "good", "fine"])
        assert [answer.error for answer in answers] == [None, "the model's answer is not a number (NaN)", None]
        assert answers[1].label is answers[1].exit_layer is None

    asyncio.run(ask())


def test_a_full_queue_says_come_back(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder, max_queue=4) as service:
            held = Held(service)
            waiting = [asyncio.create_task(service.answer(["good", "bad"])) for _ in range(2)]
            await held.until_it_begins()
            with pytest.raises(Overloaded) as refused:
                await service.answer(["one more"])
            assert refused.value.retry_after > 0
            with pytest.raises(OfframpError, match="5 texts in one request, and the queue takes 4"):
                await service.answer(["x"] * 5)
            held.go.set()
            assert all(len(answers) == 2 for answers in await asyncio.gather(*waiting))
            assert len(await service.answer(["one more"])) == 1

    asyncio.run(ask())


def test_who_would_be_too_late_is_refused_at_once(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder) as service:
            await service.answer(["good"])
            held = Held(service)
            waiting = asyncio.create_task(service.answer(["good"] * 10))
            await held.until_it_begins()
            service.flow.seconds_per_row = 0.5
            with pytest.raises(Overloaded) as refused:
                await service.answer(["good"], deadline_s=1.0)
            assert refused.value.retry_after == pytest.approx(2.5)
            held.go.set()
            await waiting

    asyncio.run(ask())


def test_a_deadline_that_passes(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder) as service:
            held = Held(service)
            with pytest.raises(TooLate):
                await service.answer(["good", "bad"], deadline_s=0.05)
            held.go.set()
            await until(lambda: service.flow.pending == 0)
            assert held.rows <= 2, "what is too late is not computed to its end"
            assert len(await service.answer(["good"], deadline_s=30)) == 1

    asyncio.run(ask())


def test_who_leaves_frees_their_rows(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder, max_queue=20) as service:
            held = Held(service)
            tasks = [asyncio.create_task(service.answer(["good"] * 5)) for _ in range(4)]
            await held.until_it_begins()
            for task in tasks[1:]:
                task.cancel()
            await asyncio.wait(tasks[1:])
            held.go.set()
            assert len(await tasks[0]) == 5
            await until(lambda: service.flow.pending == 0)
            # Five rows through five layers; of the fifteen others at most the layer that had begun.
            assert held.rows <= 25 + 15
            assert service.stats()["answered"] == 5

    asyncio.run(ask())


@pytest.mark.parametrize("before", [0, 3], ids=["at once", "after a quiet time"])
def test_draining_finishes_what_was_accepted(folder: Path, before: int) -> None:
    async def ask() -> None:
        async with serving(folder) as service:
            for _ in range(before):
                await service.answer(["good"])
            held = Held(service)
            waiting = [asyncio.create_task(service.answer(["good"])) for _ in range(10)]
            await held.until_it_begins()
            draining = asyncio.create_task(service.drain(30))
            await asyncio.sleep(0.01)
            assert not service.ready
            with pytest.raises(Closing):
                await service.answer(["too late"])
            held.go.set()
            assert await draining
            assert all(answer[0].error is None for answer in await asyncio.gather(*waiting))
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("offramp-compute")]

    asyncio.run(ask())


def test_draining_that_takes_too_long_tells_those_who_wait(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder) as service:
            held = Held(service)
            waiting = asyncio.create_task(service.answer(["good"]))
            await held.until_it_begins()
            asyncio.get_running_loop().call_later(0.2, held.go.set)
            assert not await service.drain(0.05)
            with pytest.raises(Closing):
                await waiting

    asyncio.run(ask())


def test_before_the_start_nothing_is_taken(folder: Path) -> None:
    service = Service(str(folder), device="cpu")
    assert not service.ready
    with pytest.raises(Closing):
        asyncio.run(service.answer(["good"]))


def test_a_server_that_breaks_refuses_instead_of_hanging(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    async def ask() -> None:
        async with serving(folder) as service:

            def broken(job: Any) -> None:
                raise MemoryError

            monkeypatch.setattr(service.batcher, "_step", lambda: broken(None))
            with pytest.raises(Closing):
                await asyncio.wait_for(service.answer(["good"]), 30)
            assert not service.ready

    asyncio.run(ask())


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_trace_is_what_every_exit_says(folder: Path, backend: str) -> None:
    model = offramp.load(folder)
    text = "a good film"

    async def ask() -> None:
        async with serving(folder, policy=ENTROPY, backend=backend) as service:
            said = await service.trace(text)
            [row] = service.engine.encoder([text])
            with torch.no_grad():
                exits = torch.stack(model(torch.tensor([row.input_ids])).exit_logits)[:, 0]
            assert [exit.layer for exit in said] == [1, 2, 3, 4, 5]
            np.testing.assert_allclose([exit.logits for exit in said], exits, atol=1e-4)
            assert [exit.label for exit in said] == [LABELS[best] for best in exits.argmax(-1).tolist()]
            assert [exit.confidence for exit in said] == [max(exit.scores) for exit in said]
            assert service.stats()["answered"] == 0
            with pytest.raises(OfframpError, match="half a character"):
                await service.trace("\ud800")

    asyncio.run(ask())


def test_what_a_server_says_of_itself(folder: Path) -> None:
    async def ask() -> None:
        async with serving(folder, policy=ENTROPY, name="films") as service:
            await service.answer(TEXTS)
            info, stats = service.info(), service.stats()
        assert info["name"] == "films"
        assert (info["family"], info["layers"], info["labels"]) == ("bert", 5, list(LABELS))
        assert [point["name"] for point in info["operating_points"]] == [ENTROPY, "full depth"]
        exits = [answer.exit_layer for answer in Engine(str(folder), ENTROPY)(TEXTS)]
        assert stats["exits"] == {layer: exits.count(layer) for layer in range(1, 6)}
        assert stats["answered"] == sum(stats["per_second"]) == len(TEXTS)
        assert stats["mean_layers"] == pytest.approx(np.mean(exits))
        assert stats["layers_saved"] == pytest.approx(1 - np.mean(exits) / 5)
        assert stats["queue"] == 0

    asyncio.run(ask())


def test_models_that_cannot_be_served(tmp_path: Path, folder: Path) -> None:
    from tests.tiny import tiny_model

    with pytest.raises(OfframpError, match="spans"):
        Service(tiny_model(span=True))
    with pytest.raises(OfframpError, match="tokenizer"):
        Service(tiny_model())
    with pytest.raises(OfframpError, match="max queue"):
        Service(str(folder), max_queue=0)
    with pytest.raises(OfframpError, match="audit"):
        Service(str(folder), audit=2.0)


def test_thousands_of_requests_each_answered_once(folder: Path) -> None:
    """From many clients, some of which leave; nothing is left behind."""

    async def ask() -> None:
        async with serving(folder, policy=ENTROPY, max_queue=256, audit=0.1) as service:
            right = [answer.label for answer in Engine(str(folder), ENTROPY)(TEXTS)]
            answered = 0

            async def client(number: int) -> None:
                nonlocal answered
                for turn in range(40):
                    place = (7 * number + turn) % len(TEXTS)
                    if turn % 9 == 8:
                        task = asyncio.create_task(service.answer([TEXTS[place]]))
                        await asyncio.sleep(0)
                        task.cancel()
                        continue
                    [answer] = await service.answer([TEXTS[place]])
                    assert answer.label == right[place]
                    answered += 1

            await asyncio.gather(*(client(number) for number in range(50)))
            await until(lambda: service.flow.pending == 0)
            assert answered == 50 * 36
            assert not service.flow._requests

    asyncio.run(ask())
