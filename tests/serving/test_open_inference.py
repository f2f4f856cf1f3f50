"""The Open Inference Protocol: what its clients send, and what they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import offramp
from tests.prediction.models import write
from tests.serving.http_server import Waiting, client_of, is_refused, settings_of
from tests.tiny import tiny_model

INFER = "/v2/models/reviews/infer"


@pytest.fixture(scope="module")
def client(calibrated: Path) -> Iterator[httpx.Client]:
    with client_of(settings_of(calibrated, max_inputs=8)) as client:
        yield client


def tensor(data: list[Any], shape: list[int] | None = None, **changed: Any) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": shape or [len(data)], "data": data, **changed}


def infer(client: httpx.Client, *tensors: dict[str, Any], **more: Any) -> httpx.Response:
    return client.post(INFER, json={"inputs": list(tensors), **more})


def outputs(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found = answer.json()["outputs"]
    for one in found:
        size = 1
        for side in one["shape"]:
            size *= side
        assert len(one["data"]) == size
    return {one["name"]: one["data"] for one in found}


def test_health_and_metadata(client: httpx.Client) -> None:
    assert client.get("/v2").json()["name"] == "offramp"
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/reviews/ready").json() == {"name": "reviews", "ready": True}
    about = client.get("/v2/models/reviews").json()
    assert about["inputs"][0]["datatype"] == "BYTES"
    assert {one["name"]: one["datatype"] for one in about["outputs"]} == {
        "label": "BYTES",
        "score": "FP32",
        "scores": "FP32",
        "exit_layer": "INT32",
    }


@pytest.mark.parametrize(
    ("tensors", "texts"),
    [
        ([tensor(["a fine film", "dull"])], ["a fine film", "dull"]),
        ([tensor(["a fine film", "dull"], [2, 1])], ["a fine film", "dull"]),
        ([tensor([["a fine film"], ["dull"]], [2, 1])], ["a fine film", "dull"]),
        ([tensor(["a", "b", "c", "d"], [2, 2])], [("a", "b"), ("c", "d")]),
        ([tensor([["a", "b"], ["c", "d"]], [2, 2])], [("a", "b"), ("c", "d")]),
        ([tensor(["a", "c"]), tensor(["b", "d"], name="text_pair")], [("a", "b"), ("c", "d")]),
    ],
    ids=str,
)
def test_texts_come_as_tensors(client: httpx.Client, calibrated: Path, tensors: Any, texts: Any) -> None:
    expected = offramp.Engine(calibrated, backend="torch")(texts)
    answer = infer(client, *tensors, id="42")
    found = outputs(answer)
    assert found["label"] == [one.label for one in expected]
    assert found["score"] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert found["scores"] == pytest.approx([score for one in expected for score in one.scores], abs=1e-5)
    assert found["exit_layer"] == [one.exit_layer for one in expected]
    assert (answer.json()["id"], answer.json()["model_name"]) == ("42", "reviews")


def test_a_request_chooses_its_point_and_its_outputs(client: httpx.Client) -> None:
    answer = infer(
        client,
        tensor(["dull"]),
        parameters={"full_depth": True, "binary_data_output": False},
        outputs=[{"name": "exit_layer"}],
    )
    assert outputs(answer) == {"exit_layer": [4]}
    assert answer.json()["parameters"]["point_name"] == "full depth"
    assert "id" not in answer.json()


@pytest.mark.parametrize(
    ("asked", "told"), [({"policy": "fixed(2)"}, {"name", "policy"}), ({}, {"name", "policy", "promise", "limit"})]
)
def test_what_is_not_promised_is_not_among_the_parameters(
    client: httpx.Client, asked: dict[str, Any], told: set[str]
) -> None:
    parameters = infer(client, tensor(["dull"]), parameters=asked).json()["parameters"]
    assert set(parameters) == {f"point_{name}" for name in told}
    assert None not in parameters.values()


def test_a_text_that_is_too_long_fails_alone(client: httpx.Client) -> None:
    found = outputs(infer(client, tensor(["dull", "fine " * 600]), parameters={"truncate": False}))
    assert found["error"][0] == ""
    assert "token" in found["error"][1]
    assert (found["label"][1], found["exit_layer"][1]) == ("", 0)
    is_refused(infer(client, tensor(["fine " * 600]), parameters={"truncate": False}), 422, "token")


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ([tensor(["a"], datatype="FP32")], "text has datatype 'FP32': texts are BYTES"),
        ([tensor([1.0], datatype="INT64")], "texts are BYTES"),
        ([tensor(["a"], [2])], r"has not the shape \[2\]"),
        ([tensor(["a", "b"], [1])], r"has not the shape \[1\]"),
        ([tensor([["a"], ["b", "c"]], [2, 2])], "has not the shape"),
        ([tensor(["a", ["b"]], [2])], "has not the shape"),
        ([tensor(["a"], [1, 3])], r"shape \[1, 3\]: expected"),
        ([tensor(["a"], [-1])], "expected"),
        ([tensor([], [0])], "expected"),
        ([tensor(["a"], [1, 1, 1])], "expected"),
        ([tensor([3])], "must be strings"),
        ([tensor([None])], "must be strings"),
        ([tensor(["a"], name="words")], "not 'words'"),
        ([tensor(["a"], name="text_pair")], "'text' is missing"),
        ([tensor(["a"]), tensor(["b"])], "once each"),
        ([tensor(["a"]), tensor(["b", "c"], name="text_pair")], "one text for each"),
        ([tensor(["a", "b"], [1, 2]), tensor(["c"], name="text_pair")], "one text for each"),
        ([], "at least 1 item"),
        ([{"name": "text"}], r"inputs\.0\.shape: Field required"),
    ],
    ids=str,
)
def test_tensors_that_are_no_texts_are_refused(client: httpx.Client, tensors: Any, match: str) -> None:
    is_refused(infer(client, *tensors), 422, match)


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"outputs": [{"name": "probability"}]}, "no 'probability' here; there is label"),
        ({"parameters": {"max_loss": "much"}}, "max_loss: Input should be a valid number"),
        ({"parameters": {"maxloss": 0.1}}, "maxloss: Extra inputs"),
        ({"parameters": {"policy": "fixed(9)"}}, "9"),
        ({"parameters": {"max_loss": 1e-6}}, "not certified"),
        ({"inputs": 3}, "inputs: Input should be a valid"),
        ({"id": 7}, "id: Input should be a valid string"),
    ],
    ids=str,
)
def test_wishes_that_cannot_be_met(client: httpx.Client, more: dict[str, Any], match: str) -> None:
    is_refused(client.post(INFER, json={"inputs": [tensor(["a"])], **more}), 422, match)


def test_too_many_texts(client: httpx.Client) -> None:
    is_refused(infer(client, tensor(["a"] * 9)), 413, "9 texts, but a request may hold 8")


def test_another_model_is_not_here(client: httpx.Client) -> None:
    for path in ("/v2/models/other", "/v2/models/other/ready"):
        is_refused(client.get(path), 404, "no model 'other' here: this server has 'reviews'")
    is_refused(client.post("/v2/models/other/infer", json={"inputs": [tensor(["a"])]}), 404, "no model 'other' here")


def test_binary_tensors_are_refused(client: httpx.Client) -> None:
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": "2"}
    is_refused(client.post(INFER, content=b"{}\x00\x00", headers=headers), 415, "application/json")


def test_a_server_that_is_not_ready_says_so(calibrated: Path) -> None:
    waiting = Waiting(offramp.load(calibrated))
    with client_of(settings_of(calibrated), waiting) as client:
        waiting.ready = False
        for path in ("/v2/health/ready", "/v2/models/waiting/ready", "/health"):
            refused = client.get(path)
            is_refused(refused, 503, "starting, or shutting down")
            assert refused.headers["retry-after"] == "1"
        assert client.get("/v2/health/live").status_code == 200


def test_numbers(tmp_path: Path) -> None:
    model = write(tiny_model("bert", layers=3, num_labels=1), tmp_path / "reviews", None)
    with client_of(settings_of(model)) as client:
        [expected] = offramp.Engine(model, backend="torch")(["dull"])
        found = outputs(infer(client, tensor(["dull"])))
        assert found == {"value": [pytest.approx(expected.label, abs=1e-5)], "exit_layer": [3]}
