"""What the how-to pages say: requests are answered, metrics, options and settings that they name exist."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from offramp.cli.app import app
from offramp.serving.app import create_app
from offramp.serving.metrics import OUTCOMES
from offramp.serving.ray_serve import SCALING, settings_from
from offramp.serving.server import service_of
from offramp.serving.settings import Settings
from tests.calibration.made_model import NAMES, labelled_file, settled_model
from tests.command_line import Result
from tests.generated import reviews
from tests.pages.reading import ROOT, blocks
from tests.test_deploy import exported

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SERVE, RAY = "docs/how-to/serve.md", "docs/how-to/ray.md"


def lines(document: str, language: str, begin: str) -> list[str]:
    """Of the fenced blocks in a language, those with such a beginning."""
    found = [line for block in blocks(document) if block.language == language for line in block.text.splitlines()]
    return [line for line in found if re.match(begin, line)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated one by the name that the pages use."""
    home = tmp_path_factory.mktemp("home")
    task = {"name": "reviews", "dev": "dev.csv", "text": "review", "label": "verdict", "labels": list(NAMES)}
    model = settled_model(home / "runs" / "reviews", trained=task)
    labelled_file(home / "dev.csv", model, 500)
    return model


def test_requests_are_answered(model: Path, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parents[1])
    done = run("calibrate", "runs/reviews", "--max-loss", "0.05")
    assert done.status == 0, done.err
    settings = Settings(str(model), backend="torch")
    requests = [curl(line) for page in (SERVE, "README.md") for line in lines(page, "sh", "curl ")]
    answered = asyncio.run(ask(settings, requests))
    assert len(answered) >= 9
    for response in answered:
        assert response.status_code == 200, response.text
    headers = re.findall(r"`(x-offramp-[\w-]+)`", (ROOT / SERVE).read_text())
    assert headers
    assert set(headers) <= set(answered[0].headers)


def curl(line: str) -> tuple[str, str, str | None]:
    """Method, path and body of a request."""
    words = shlex.split(line)
    body = words[words.index("--json") + 1] if "--json" in words else None
    [url] = [word for word in words if word.startswith("localhost:8000/")]
    return ("GET" if body is None else "POST"), url.removeprefix("localhost:8000"), body


async def ask(settings: Settings, requests: list[tuple[str, str, str | None]]) -> list[httpx.Response]:
    app = create_app(service_of(settings), settings)
    json = {"content-type": "application/json"}
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=json) as client:
            return [await client.request(method, path, content=body) for method, path, body in requests]


def test_metrics_options_and_files_that_are_named_exist() -> None:
    page = (ROOT / SERVE).read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported()}
    named = set(re.findall(r"`?\b(offramp_\w+)", page))
    assert named <= families
    assert {name for name in families if name.startswith("offramp_")} <= named, "one is not explained"
    outcomes = re.search(r"how they ended: ([^|]*)\|", page)
    assert outcomes
    assert set(re.findall(r"`(\w+)`", outcomes[1])) <= set(OUTCOMES)
    for document in (SERVE, RAY):
        text = (ROOT / document).read_text()
        options = {option for name in ("serve", "predict") for one in COMMANDS[name].params for option in one.opts}
        assert set(re.findall(r"`(--[\w-]+)", text)) <= options


def test_arguments_of_serve_run_are_settings() -> None:
    [line] = lines(RAY, "sh", "serve run ")
    module, function = line.split()[2].split(":")
    assert hasattr(__import__(module, fromlist=[function]), function)
    given = dict(word.split("=") for word in line.split()[3:])
    assert settings_from({name: value for name, value in given.items() if name not in SCALING}).max_replicas == 4


def test_the_folder_looks_as_it_is_drawn(
    model: Path, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that needs no Ray, on a folder with the file that is drawn."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "incoming" / "2024").mkdir(parents=True)
    rows = "".join(f"{i},{text}\n" for i, (text, _) in enumerate(reviews(30)))
    (tmp_path / "incoming" / "2024" / "january.csv").write_text("id,review\n" + rows)
    [line] = [line for line in lines(RAY, "sh", "offramp predict") if "ray" not in line.replace("--out", "")]
    arguments = shlex.split(line.replace("runs/reviews", str(model)))[1:]
    done = run(*arguments, "--rows-per-part", "20")
    assert done.status == 0, done.err
    [drawn] = [block.text for block in blocks(RAY) if block.language == "text"]
    there = [path.name for path in (tmp_path / "answered-here").rglob("*") if path.is_file()]
    named = [name for name in re.findall(r"^ +(\S+)", drawn, re.MULTILINE) if not name.endswith("/")]
    assert sorted(there) == sorted(named)
