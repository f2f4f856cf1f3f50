"""The server on Ray: the settings it is told, the answers of the plain server, and replicas that come under load."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import ray_runs

from offramp.errors import OfframpError
from offramp.serving import ray_serve
from offramp.serving.app import create_app
from offramp.serving.ray_serve import NAME, application, serve_on_ray, settings_from
from offramp.serving.server import bound, service_of
from offramp.serving.settings import Settings
from tests.command_line import Result
from tests.generated import reviews
from tests.prediction.models import model_folder

KEY = "a-key"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's of itself


def test_settings_as_they_are_typed() -> None:
    typed = {"model": "m", "port": "9000", "audit": "0.5", "allow": "max_loss,policy", "page": "false", "cors": "none"}
    found = settings_from({**typed, "threads": "2", "api_keys": "one,two"})
    assert found == Settings(
        "m",
        port=9000,
        audit=0.5,
        allow=("max_loss", "policy"),
        page=False,
        threads=2,
        api_keys=("one", "two"),
        engine="ray",
    )
    assert settings_from({"model": "m", "api_keys": ["one"], "port": 9000}).api_keys == ("one",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modle": "m"}, "'modle' is no setting: use model, name, host"),
        ({"port": "9000"}, "model: Field required"),
        ({"model": "m", "port": "many"}, "port: Input should be a valid integer"),
        ({"model": "m", "max_replicas": "0"}, "at most 0 replicas, but at least 1"),
    ],
)
def test_wrong_settings(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OfframpError, match=message):
        settings_from(arguments)


def test_what_is_wrong_is_told_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.serving.ray_serve.cluster", lambda: pytest.fail("it started Ray"))
    model = model_folder(tmp_path / "model")
    with pytest.raises(OfframpError, match="no exit there"):
        serve_on_ray(Settings(str(model), policy="fixed(9)", engine="ray"))


def test_without_ray_it_is_told_what_brings_it(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("ray", "ray.serve"):
        monkeypatch.setitem(sys.modules, module, None)
    refused = run("serve", tmp_path, "--engine", "ray")
    assert (refused.status, refused.err) == (2, "error: this needs ray: pip install 'offramp[ray]'\n")


class FakeServe:
    """Ray Serve that starts at once, until `run` is told otherwise."""

    def __init__(self, during_run: Callable[[], None] = lambda: None) -> None:
        self.during_run = during_run
        self.deleted: list[str] = []

    def start(self, http_options: dict[str, Any]) -> None:
        self.http_config = SimpleNamespace(host=http_options["host"], port=http_options["port"])

    def _get_global_client(self) -> FakeServe:
        return self

    def run(self, app: Any, name: str, route_prefix: str) -> None:
        self.during_run()

    def delete(self, name: str) -> None:
        self.deleted.append(name)


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[FakeServe, Settings]]:
    fake, four = FakeServe(), SimpleNamespace(is_initialized=lambda: True, cluster_resources=lambda: {"CPU": 4.0})
    for name, made in {"needs": lambda *_: fake, "application": lambda *_: None}.items():
        monkeypatch.setattr(ray_serve, name, made)
    monkeypatch.setattr(ray_serve, "cluster", lambda: nullcontext(four))
    before = [signal.getsignal(kind) for kind in ray_serve.SIGNALS]
    yield fake, Settings(str(model_folder(tmp_path / "model")), port=0, engine="ray")
    assert [signal.getsignal(kind) for kind in ray_serve.SIGNALS] == before


@pytest.mark.parametrize("kind", ray_serve.SIGNALS)
def test_a_server_that_does_not_start_can_be_stopped(faked: tuple[FakeServe, Settings], kind: signal.Signals) -> None:
    fake, settings = faked
    fake.during_run = lambda: signal.raise_signal(kind)
    with pytest.raises(KeyboardInterrupt):
        serve_on_ray(settings, lambda address: pytest.fail("it was told that it runs"))
    assert fake.deleted == [NAME]


@pytest.mark.parametrize("kind", ray_serve.SIGNALS)
@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")])
def test_a_server_is_stopped(
    faked: tuple[FakeServe, Settings], kind: signal.Signals, host: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, settings = faked
    monkeypatch.setattr(ray_serve, "bound", lambda host, port: bound("127.0.0.1", port))  # not every machine has IPv6
    told: list[str] = []
    serve_on_ray(replace(settings, host=host), lambda where: (told.append(where), signal.raise_signal(kind)))
    assert told[0].startswith(address)
    assert fake.deleted == [NAME]


def test_whoever_is_not_told_leaves_nothing_behind(faked: tuple[FakeServe, Settings]) -> None:
    fake, settings = faked

    def gone(address: str) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        serve_on_ray(settings, gone)
    assert fake.deleted == [NAME]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"threads": 64}, "no machine of the Ray cluster has 64 CPUs for a worker: say fewer --threads"),
        ({"min_replicas": 3, "max_replicas": 3, "threads": 2}, "3 replicas, but the Ray cluster has room for 2"),
    ],
)
def test_what_there_is_no_room_for_is_refused(
    faked: tuple[FakeServe, Settings], changed: dict[str, Any], message: str
) -> None:
    fake, settings = faked
    fake.during_run = lambda: pytest.fail("Ray would wait for ever")
    with pytest.raises(OfframpError, match=message):
        serve_on_ray(replace(settings, **changed))


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    *(("POST", "/predict", {"json": {"inputs": text, "details": True}}) for text, _ in reviews(12)),
    ("POST", "/predict", {"json": {"inputs": ["a good film", "the plot was bad"], "raw_scores": True}}),
    ("POST", "/predict", {"json": {"inputs": "a good film", "full_depth": True}}),
    ("POST", "/predict", {"json": {"inputs": "a good film", "policy": "fixed(2)"}}),
    ("POST", "/predict", {"json": {"inputs": "a good film", "policy": "fixed(9)"}}),
    ("POST", "/predict", {"json": {"inputs": "a good film", "max_loss": 0.01}}),
    ("POST", "/predict", {"json": {"inputs": []}}),
    ("POST", "/predict", {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("POST", "/predict", {"content": b"x" * 5000}),
    ("POST", "/predict", {"json": {"inputs": "a good film"}, "headers": {"authorization": "Bearer wrong"}}),
    ("GET", "/info", {}),
    ("GET", "/nothing", {}),
    ("GET", "/v2/models/single", {}),
    ("GET", "/v2/health/ready", {}),
]


def told(response: httpx.Response) -> tuple[int, Any, dict[str, str]]:
    """What must be the same: not how long it took."""
    body = response.json()
    if isinstance(body, dict):
        body.pop("timings_ms", None)
    names = ("x-offramp-exit-layer", "x-offramp-confidence", "x-offramp-point", "x-offramp-layers", "www-authenticate")
    return response.status_code, body, {name: response.headers.get(name, "") for name in names}


async def plain_answers(settings: Settings) -> list[Any]:
    """Of the application in this process."""
    app = create_app(service_of(settings), settings)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://plain", headers=headers) as client:
            return [told(await client.request(method, path, **more)) for method, path, more in REQUESTS]


@pytest.mark.usefixtures("ray_here")
def test_ray_answers_as_the_plain_server_does(tmp_path: Path) -> None:
    from ray import serve

    model = model_folder(tmp_path / "single")
    settings = Settings(
        str(model), policy="entropy(0.4)", threads=1, audit=0, api_keys=(KEY,), max_body=2000, engine="ray"
    )
    with bound("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        with pytest.raises(OfframpError, match=f"Ray Serve runs on this cluster already, at http://127.0.0.1:{port}: "):
            serve_on_ray(replace(settings, port=0), lambda address: pytest.fail("nothing is there"))
        serve.run(application(settings), name=NAME, route_prefix="/")
        headers = {"authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
            found = [told(client.request(method, path, **more)) for method, path, more in REQUESTS]
    finally:
        serve.shutdown()
    expected = asyncio.run(plain_answers(settings))
    assert [status for status, *_ in found].count(200) >= 17
    for request, ours, theirs in zip(REQUESTS, found, expected, strict=True):
        assert ours == theirs, request


@pytest.mark.slow
def test_replicas_come_under_load(tmp_path: Path) -> None:
    found = ray_runs.server(tmp_path / "work")
    assert found["same_as_plain_server"]
    assert (found["replicas_before_load"], found["replicas_under_load"]) == (1, 2)
    assert found["requests"] > 100
    assert found["refused"] == found["other_answers"] == 0
    assert found["status_after_sigterm"] == 0
