"""What the page is sent: its files, and where a text leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from offramp.policies import Confidence, first_exit
from offramp.serving.app import create_app
from offramp.serving.page_points import points_shown
from offramp.serving.page_routes import page_files
from offramp.serving.settings import Settings
from tests.prediction.models import model_folder
from tests.serving.http_server import client_of, settings_of
from tests.serving.page_server import StubService, comes_near, points_of

FILES = ["/", *(f"/page/{name}" for name in page_files(wants_key=False) if name != "index.html")]


def client_for(service: Any, **settings: Any) -> TestClient:
    return TestClient(create_app(service, Settings("made up", **settings)))


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_files(path: str, method: str) -> None:
    client = client_for(StubService())
    response = client.request(method, path)
    assert response.status_code == 200
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-cache"
    for known, status in (
        (response.headers["etag"], 304),
        (f'"old", W/{response.headers["etag"]}', 304),
        ('"old"', 200),
    ):
        again = client.request(method, path, headers={"if-none-match": known})
        assert again.status_code == status
        assert again.headers["etag"] == response.headers["etag"]


def test_nothing_inline_and_nothing_from_elsewhere() -> None:
    files = {name: file.content.decode() for name, file in page_files(wants_key=False).items()}
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:|<script(?![^>]*\ssrc=)", files["index.html"])
    for name, text in files.items():
        addresses = set(re.findall(r"https?://[^\s\"')]+", text))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text), name
    asked = {match for text in files.values() for match in re.findall(r'(?:"page/|"\./)([\w.]+\.\w+)"', text)}
    assert asked | {"index.html"} == set(files)


def test_other_files_are_not_there() -> None:
    client = client_for(StubService())
    for path in ("/page/index.html", "/page/../page_routes.py", "/page/%2e%2e/page_routes.py", "/page/"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize("text", ["a fine film", "slow, but fine"])
@pytest.mark.parametrize("place", [None, 0, 5])
def test_trace(text: str, place: int | None) -> None:
    service = StubService()
    body = {"text": text} | ({} if place is None else {"point": place})
    response = client_for(service).post("/page/trace", json=body)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    trace, points = response.json(), points_shown(service.points).points
    logits = logits_of(service, text)
    assert trace["leaves"] == [int(first_exit(point.policy, logits)) for point in points]
    assert trace["leaves"] == sorted(trace["leaves"])
    assert trace["leaves"][-1] == 11
    assert [exit["layer"] for exit in trace["exits"]] == list(range(1, 13))
    assert service.asked == [(text, points[3 if place is None else place])]
    assert trace["answer"]["point"] == (3 if place is None else place)
    assert trace["answer"]["took_ms"] == pytest.approx(3.7)


def logits_of(service: StubService, text: str) -> Any:
    return torch.tensor([exit.logits for exit in service.said(text)]).unsqueeze(1)


def test_trace_of_a_pair_and_of_numbers() -> None:
    service = StubService(regression=True, labels=(), says=comes_near, points=points_of(12, "own"))
    response = client_for(service).post("/page/trace", json={"text": "a", "second": "b"})
    assert response.json()["leaves"] == [5, 11]
    assert response.json()["exits"][0]["confidence"] is None
    assert service.asked[0][0] == ("a", "b")


@pytest.mark.parametrize(("deadline", "most"), [(5.0, 5.0), (100.0, 20.0)])
def test_a_trace_has_a_deadline(deadline: float, most: float) -> None:
    service = StubService()
    client_for(service, deadline=deadline).post("/page/trace", json={"text": "a"})
    answer, rest = service.deadlines
    assert answer == most
    assert 0 < rest < most


@pytest.mark.parametrize(("trained", "status"), [("sst-2", 422), ("rte", 200)])
def test_pairs_are_answered_where_the_model_knows_them(trained: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(json.dumps({"task": {"name": trained}}))
    client = client_for(StubService(folder=str(tmp_path)))
    assert client.post("/page/trace", json={"text": "a", "second": "b"}).status_code == status


@pytest.mark.parametrize(
    "body",
    [{}, {"text": 3}, {"text": "a", "point": 6}, {"text": "a", "point": -1}, {"text": "a", "point": "0"},
     {"text": None}, {"text": "a", "more": 1}, {"text": "a", "second": ["b"]}, ["a"], "a", None],
)  # fmt: skip
def test_refused(body: Any) -> None:
    service = StubService()
    assert client_for(service).post("/page/trace", json=body).status_code == 422
    assert not service.asked


def test_a_text_that_has_no_answer() -> None:
    response = client_for(StubService(error="the text holds half a character")).post("/page/trace", json={"text": "a"})
    assert response.status_code == 422
    assert response.json() == {"error": "the text holds half a character", "error_type": "validation"}


@pytest.mark.parametrize(("method", "path"), [("GET", "/page/about"), ("GET", "/page/stats"), ("POST", "/page/trace")])
def test_key(method: str, path: str) -> None:
    client = client_for(StubService(), api_keys=("secret",))
    body = {"text": "a"} if method == "POST" else None
    assert client.request(method, path, json=body).status_code == 401
    assert client.request(method, path, json=body, headers={"authorization": "Bearer secret"}).status_code == 200
    for free in FILES:
        assert client.get(free).status_code == 200
    assert 'data-key="wanted"' in client.get("/").text
    assert 'data-key="none"' in client_for(StubService()).get("/").text


def test_places_of_the_slider() -> None:
    points = points_of(12)
    shown = points_shown(points)
    assert [point.name for point in shown.points] == [
        "max_loss=0.1", "max_loss=0.05", "max_loss=0.02", "calibrated", "max_loss=0.005", "full depth",
    ]  # fmt: skip
    assert shown.default == 3
    points.forbidden = "max_loss"
    assert [point.name for point in points_shown(points).points] == ["calibrated", "full depth"]
    points.forbidden = "full_depth"
    assert points_shown(points).points[-1].policy == Confidence(0.99)
    assert [point.name for point in points_shown(points_of(12, "uncalibrated")).points] == ["full depth"]


@pytest.mark.parametrize(("task", "pair"), [({"name": "sst-2"}, False), ({"name": "rte"}, True), ({}, None)])
def test_pairs(task: Any, pair: bool | None, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(json.dumps({"task": task}))
    assert client_for(StubService(folder=str(tmp_path))).get("/page/about").json()["pair"] is pair


def test_every_place_leaves_where_the_server_does(calibrated: Path) -> None:
    texts = ["a fine film , and a good one", "bad", "the plot was dull and the cast was great", "a . a . a"]
    with client_of(settings_of(calibrated)) as client:
        about = client.get("/page/about").json()
        assert len(about["points"]) > 2
        assert about["metric"] == {"title": "accuracy", "percent": True}
        for text in texts:
            leaves = client.post("/page/trace", json={"text": text}).json()["leaves"]
            for point, exit in zip(about["points"], leaves, strict=True):
                wish = {"full_depth": True} if point["full_depth"] else {"max_loss": point["limit"]}
                answer = client.post("/predict", json={"inputs": text, "details": True, **wish}).json()
                assert answer["details"][0]["exit_layer"] == about["exit_layers"][exit]


def test_a_model_of_numbers(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "model", labels=())
    with client_of(settings_of(folder, policy="patience(1, tolerance=0.5)")) as client:
        about = client.get("/page/about").json()
        assert about["regression"]
        assert [point["name"] for point in about["points"]] == ["patience(1, tolerance=0.5)", "full depth"]
        trace = client.post("/page/trace", json={"text": "good", "second": "bad"}).json()
        numbers = [exit["label"] for exit in trace["exits"]]
        moves = np.abs(np.diff(numbers)) < 0.5
        assert trace["leaves"] == [int(moves.argmax()) + 1 if moves[:-1].any() else 4, 4]
        assert client.get("/page/stats").json()["answered"] == 1  # what every exit says is no answer of the server
