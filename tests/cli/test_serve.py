"""`offramp serve`: its options, as arguments and as variables, and a server process from start to end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from offramp.cli.app import app
from offramp.serving.batching import PoolBatcher
from offramp.serving.settings import Settings
from tests.command_line import Result
from tests.prediction.models import model_folder
from tests.serving.http_server import until

Run = Callable[..., Result]
VALUES = {
    "name": ("other", "other"),
    "host": ("::1", "::1"),
    "port": ("9000", 9000),
    "policy": ("entropy(0.1)", "entropy(0.1)"),
    "allow": ("max_loss,full_depth", ("max_loss", "full_depth")),
    "audit": ("0.2", 0.2),
    "device": ("cuda:1", "cuda:1"),
    "precision": ("int8", "int8"),
    "backend": ("torch", "torch"),
    "threads": ("3", 3),
    "max_length": ("64", 64),
    "max_batch_tokens": ("512", 512),
    "max_queue": ("2000", 2000),
    "max_inputs": ("7", 7),
    "max_body": ("1000", 1000),
    "max_requests": ("8", 8),
    "deadline": ("2.5", 2.5),
    "read_timeout": ("3.5", 3.5),
    "keep_alive": ("4.5", 4.5),
    "drain": ("5.5", 5.5),
    "api_keys": ("secret", ("secret",)),
    "cors": ("https://a.example,https://b.example", ("https://a.example", "https://b.example")),
    "page": (None, False),
    "access_log": (None, True),
}
OPTIONS = {"api_keys": "api_key", "page": "no_page"}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that a server would have been started with."""
    found: list[Settings] = []
    monkeypatch.setattr("offramp.serving.server.run", lambda settings, ready: found.append(settings))
    return found


def test_there_is_an_option_for_everything() -> None:
    ray = {"model", "engine", "min_replicas", "max_replicas"}
    assert {field.name for field in fields(Settings)} == VALUES.keys() | ray
    command: Any = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    named = {OPTIONS.get(name, name).removeprefix("no_") for name in VALUES}
    assert {parameter.name for parameter in command.params} == named | ray | {"api_key_file"}
    defaults = Settings("model")
    for parameter in command.params:
        if parameter.name in VALUES and parameter.name not in ("allow", "cors"):
            assert parameter.default == getattr(defaults, parameter.name)


@pytest.mark.parametrize("name", VALUES)
def test_each_is_an_argument_and_a_variable(
    run: Run, served: list[Settings], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    given, value = VALUES[name]
    option = "--" + OPTIONS.get(name, name).replace("_", "-")
    assert run("serve", "model", option, *([given] if given else [])).status == 0
    variable = f"OFFRAMP_SERVE_{OPTIONS.get(name, name).removeprefix('no_').upper()}"
    monkeypatch.setenv(variable, given or str(int(bool(value))))
    monkeypatch.setenv("OFFRAMP_SERVE_MODEL", "model")
    assert run("serve").status == 0
    assert served == [Settings("model", **{name: value})] * 2


def test_ray_has_replicas(run: Run, served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    on_ray: list[Settings] = []
    monkeypatch.setattr("offramp.serving.ray_serve.serve_on_ray", lambda settings, ready: on_ray.append(settings))
    assert run("serve", "model", "--engine", "ray", "--min-replicas", "2", "--max-replicas", "5").status == 0
    for name, value in {"ENGINE": "ray", "MIN_REPLICAS": "2", "MAX_REPLICAS": "5"}.items():
        monkeypatch.setenv(f"OFFRAMP_SERVE_{name}", value)
    assert run("serve", "model").status == 0
    assert on_ray == [Settings("model", engine="ray", min_replicas=2, max_replicas=5)] * 2
    assert served == []


def test_an_argument_goes_before_a_variable(run: Run, served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFRAMP_SERVE_PORT", "9000")
    run("serve", "model", "--port", "9001")
    assert served[0].port == 9001


def test_keys_come_from_a_file_too(run: Run, served: list[Settings], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("first\nsecond\n")
    run("serve", "model", "--api-key-file", tmp_path / "keys")
    assert served[0].api_keys == ("first", "second")


@pytest.mark.parametrize("variable", ["OFFRAMP_SERVE_API_KEY", "OFFRAMP_SERVE_API_KEY_FILE"])
@pytest.mark.parametrize("blank", ["", "  "])
def test_a_key_that_is_blank_lets_nobody_in(
    run: Run, served: list[Settings], monkeypatch: pytest.MonkeyPatch, variable: str, blank: str
) -> None:
    monkeypatch.setenv(variable, blank)
    done = run("serve", "model")
    assert (done.status, done.err) == (2, f"error: {variable} is set, but blank: give it a value, or unset it\n")
    assert served == []


def test_a_server_that_is_open_to_all_is_said_to_be(run: Run, served: list[Settings]) -> None:
    assert "set a key with OFFRAMP_SERVE_API_KEY" in run("serve", "model", "--host", "0.0.0.0").err
    assert run("serve", "model", "--host", "0.0.0.0", "--api-key", "secret").err == ""


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--allow", "everything"], "a request cannot be allowed 'everything'"),
        (["--engine", "dask"], "engine 'dask'"),
        (["--max-replicas", "3"], "--max-replicas goes with --engine ray"),
        (["--api-key-file", "/nowhere"], "/nowhere"),
        (["--port", "70000"], "equal to 65535"),
        (["--audit", "2"], "equal to 1 "),
        (["--host", "no.such.host.invalid"], "there is no such address"),
    ],
    ids=str,
)
def test_what_cannot_be_served_is_refused_in_one_line(run: Run, arguments: list[str], match: str) -> None:
    done = run("serve", "model", *arguments)
    assert done.status == 2
    assert match in done.err


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run("serve", "no-such-model", "--port", str(taken.getsockname()[1]))
    assert done.status == 2
    assert re.search(r"port \d+ of 127.0.0.1 cannot be had .*: give another with --port", done.err)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "httptools", "prometheus_client"])
def test_what_is_missing_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    done = run("serve", "model")
    assert (done.status, done.err) == (2, f"error: this needs {module}: pip install 'offramp[serve]'\n")


def test_a_model_of_spans_is_refused(run: Run, tmp_path: Path) -> None:
    model = model_folder(tmp_path / "spans", (), span=True)
    done = run("serve", model, "--port", "0")
    assert done.status == 2
    assert "spans" in done.err


def test_a_model_that_answers_nothing_is_refused_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PoolBatcher, "warm_up", lambda self, job: setattr(job, "error", "out of memory"))
    model = model_folder(tmp_path / "model")
    done = run("serve", model, "--port", "0", "--backend", "torch")
    assert done.status == 2
    assert done.err.splitlines()[-1] == "error: the model cannot be served: out of memory"
    assert "Traceback" not in done.err


@contextmanager
def process(model: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process, and where it listens."""
    command = [sys.executable, "-m", "offramp", "serve", str(model), "--port", "0", "--backend", "torch", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}) as it:
        assert it.stderr is not None
        try:
            line = it.stderr.readline()
            address = re.search(r"http://127.0.0.1:\d+", line)
            assert address, line + it.stderr.read()
            yield it, address.group()
        finally:
            it.kill()


@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_server_told_to_stop_answers_what_it_has_accepted(tmp_path: Path, by: signal.Signals) -> None:
    model = model_folder(tmp_path / "model", layers=12)
    texts = ["a fine film " * 30] * 100
    with process(model) as (server, address):
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{address}/predict", json={"inputs": texts, "full_depth": True}, timeout=60))

        asking = [threading.Thread(target=ask) for _ in range(3)]
        for one in asking:
            one.start()
        until(lambda: "offramp_queue_rows 0.0" not in _queued(address))
        server.send_signal(by)
        for one in asking:
            one.join(60)
        assert server.wait(60) == 0
        assert [len(answer.json()) for answer in answers] == [100] * 3
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{address}/health")
        assert server.stderr is not None
        assert server.stderr.read() == ""


def _queued(address: str) -> str:
    lines = httpx.get(f"{address}/metrics").text.splitlines()
    return next(line for line in lines if line.startswith("offramp_queue"))
