"""The HTTP application: what it answers, under which operating point, and how it refuses."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import offramp
from offramp.calibration.certificate import read_certificate
from offramp.errors import OfframpError
from offramp.serving.answers import Closing, Overloaded, TooLate
from tests.prediction.models import write
from tests.serving.http_server import Waiting, client_of, is_refused, settings_of
from tests.tiny import tiny_model

TEXTS = ["a fine film", "dull", "the plot is a mess but the cast is good", "fine " * 40]


@pytest.fixture(scope="module")
def client(calibrated: Path) -> Iterator[httpx.Client]:
    with client_of(settings_of(calibrated, max_inputs=8, max_body=20_000)) as client:
        yield client


def predict(client: httpx.Client, inputs: Any, **wish: Any) -> httpx.Response:
    return client.post("/predict", json={"inputs": inputs, **wish})


def scores(found: list[Any]) -> dict[tuple[int, str], float]:
    """By text and label: the last bits depend on the company a text is computed in."""
    return {(place, one["label"]): one["score"] for place, labels in enumerate(found) for one in labels}


@pytest.mark.parametrize("asked", [{}, {"full_depth": True}, {"policy": "patience(2)"}, {"policy": "entropy(0.5)"}])
def test_answers_are_the_engines(client: httpx.Client, calibrated: Path, asked: dict[str, Any]) -> None:
    policy = "fixed(4)" if asked.get("full_depth") else asked.get("policy")
    expected = offramp.Engine(calibrated, policy, backend="torch")(TEXTS)
    answer = predict(client, TEXTS, **asked)
    assert answer.status_code == 200
    best = [labels[0] for labels in answer.json()]
    assert [one["label"] for one in best] == [one.label for one in expected]
    assert [one["score"] for one in best] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert answer.headers["x-offramp-exit-layer"] == ",".join(str(one.exit_layer) for one in expected)
    sure = [float(one) for one in answer.headers["x-offramp-confidence"].split(",")]
    assert sure == pytest.approx([one.score for one in expected], abs=1e-4)


def test_one_text_is_a_list_of_labels_the_best_first(client: httpx.Client) -> None:
    found = predict(client, "dull").json()
    assert [set(one) for one in found] == [{"label", "score"}] * 2
    assert found[0]["score"] > found[1]["score"]
    assert sum(one["score"] for one in found) == pytest.approx(1)
    for inputs in (["dull"], [["dull"]]):
        assert scores(predict(client, inputs).json()) == pytest.approx(scores([found]), abs=1e-5)


def test_raw_scores_are_logits(client: httpx.Client, calibrated: Path) -> None:
    raw = predict(client, "dull", full_depth=True, raw_scores=True).json()
    plain = predict(client, "dull", full_depth=True).json()
    assert [one["label"] for one in raw] == [one["label"] for one in plain]
    assert sum(one["score"] for one in raw) != pytest.approx(1, abs=1e-3)


def test_pairs(client: httpx.Client, calibrated: Path) -> None:
    expected = offramp.Engine(calibrated, backend="torch")([("a fine film", "dull"), "dull"])
    found = predict(client, [["a fine film", "dull"], "dull"]).json()
    assert [labels[0]["score"] for labels in found] == pytest.approx([one.score for one in expected], abs=1e-5)


def test_details_say_where_each_text_left_and_what_was_promised(client: httpx.Client, calibrated: Path) -> None:
    found = predict(client, TEXTS, details=True).json()
    assert scores(found["predictions"]) == pytest.approx(scores(predict(client, TEXTS).json()), abs=1e-5)
    assert [one["layers"] for one in found["details"]] == [4] * 4
    assert [one["confidence"] for one in found["details"]] == [labels[0]["score"] for labels in found["predictions"]]
    assert found["point"]["promise"] == str(read_certificate(calibrated).promise)
    assert set(found["timings_ms"]) == {"queued", "tokenise", "inference", "total"}
    alone = predict(client, TEXTS[0], details=True).json()
    assert scores([alone["predictions"]]) == pytest.approx(scores(found["predictions"][:1]), abs=1e-5)
    assert len(alone["details"]) == 1


def test_a_request_asks_for_its_own_loss(client: httpx.Client, calibrated: Path) -> None:
    menu = read_certificate(calibrated).menu
    assert len(menu) > 1
    for point in menu:
        said = predict(client, "dull", max_loss=point.limit, details=True).json()["point"]
        assert (said["limit"], said["policy"]) == (point.limit, str(point.policy))
    between = (menu[0].limit + menu[1].limit) / 2
    assert predict(client, "dull", max_loss=between, details=True).json()["point"]["limit"] == menu[0].limit


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"max_loss": 1e-6}, r"max_loss 1e-06 is not certified: .* are; or ask for full_depth"),
        ({"max_loss": 0.1, "full_depth": True}, "at once: ask for one of them"),
        ({"policy": "fixed(9)"}, "9"),
        ({"policy": "guess(3)"}, "guess"),
        ({"policy": "entropy(0.1"}, "entropy"),
        ({"policy": ""}, ""),
        ({"max_loss": -1}, "max_loss: Input should be greater than or equal to 0"),
        ({"max_loss": "0.1"}, "max_loss: Input should be a valid number"),
        ({"maxloss": 0.1}, "maxloss: Extra inputs are not permitted"),
        ({"truncate": "yes"}, "truncate: Input should be a valid boolean"),
        ({"timeout_s": 0}, "timeout_s: Input should be greater than or equal to 0.001"),
        ({"inputs": []}, "inputs: the list is empty"),
        ({"inputs": {}}, "inputs: expected a text, or a list"),
        ({"inputs": None}, "inputs: expected a text, or a list"),
        ({"inputs": ["a", 3]}, r"inputs\.1: expected a text"),
        ({"inputs": ["a", ["b", "c", "d"]]}, r"inputs\.1: expected a text"),
        ({"inputs": ["a", []]}, r"inputs\.1: expected a text"),
    ],
    ids=str,
)
def test_what_cannot_be_answered_is_refused(client: httpx.Client, asked: dict[str, Any], match: str) -> None:
    is_refused(client.post("/predict", json={"inputs": "a", **asked}), 422, match)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b'{"inputs"}', b"\xff\xfe", b'{"inputs": "\\ud800"}', b"[" * 5000, b"{}", b"NaN"]
)
def test_a_body_that_is_no_request_is_refused(client: httpx.Client, body: bytes) -> None:
    is_refused(client.post("/predict", content=body, headers={"content-type": "application/json"}), 422, ".")


def test_a_text_that_is_too_long_fails_alone(client: httpx.Client) -> None:
    long = "fine " * 600
    assert predict(client, long).status_code == 200
    is_refused(predict(client, long, truncate=False), 422, "token")
    answer = predict(client, ["dull", long], truncate=False, details=True)
    assert answer.status_code == 200
    assert [len(labels) for labels in answer.json()["predictions"]] == [2, 0]
    assert [bool(one["error"]) for one in answer.json()["details"]] == [False, True]
    assert answer.headers["x-offramp-failed"] == "1"
    assert answer.headers["x-offramp-exit-layer"].endswith(",-")


@pytest.mark.parametrize("empty", ["", " \n", "\u200b", ["dull", " "], ["dull", "\u0000"]])
def test_a_text_without_words_fails_alone(client: httpx.Client, empty: Any) -> None:
    is_refused(predict(client, [empty]), 422, "the text is empty")
    answer = predict(client, ["dull", empty, "fine"], details=True).json()
    assert [bool(labels) for labels in answer["predictions"]] == [True, False, True]
    assert [one["error"] for one in answer["details"]] == [None, "the text is empty: expected some words", None]


def test_too_much_at_once(client: httpx.Client) -> None:
    is_refused(predict(client, ["dull"] * 9), 413, "9 texts, but a request may hold 8")
    is_refused(predict(client, "dull " * 5000), 413, "larger than 20,000 bytes")
    assert predict(client, ["dull"] * 8).status_code == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_only_json_is_read(client: httpx.Client, kind: str | None) -> None:
    """A page elsewhere can send plain text, or a form, without asking; JSON it cannot."""
    headers = {"content-type": kind} if kind else {}
    is_refused(client.post("/predict", content=b'{"inputs": "a"}', headers=headers), 415, "application/json")


def test_json_with_a_charset_is_json(client: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/predict", content=b'{"inputs": "a"}', headers=headers).status_code == 200


def test_what_is_compressed_is_not_read(client: httpx.Client) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    is_refused(client.post("/predict", content=gzip.compress(b'{"inputs": "a"}'), headers=headers), 415, "compressed")
    headers["content-encoding"] = "identity"
    assert client.post("/predict", content=b'{"inputs": "a"}', headers=headers).status_code == 200


def test_exits_of_many_texts_are_not_named_in_headers(calibrated: Path) -> None:
    """Which clients and proxies take for some thousand bytes only."""
    waiting = Waiting(offramp.load(calibrated), open=True)
    with client_of(settings_of(calibrated, max_inputs=513, max_queue=513), waiting) as client:
        for texts in (512, 513):
            answer = predict(client, ["a"] * texts)
            assert max(map(len, answer.headers.values())) < 4096
            for name in ("x-offramp-exit-layer", "x-offramp-confidence"):
                assert len(answer.headers.get(name, "").split(",")) == (512 if texts == 512 else 1)
            assert answer.headers["x-offramp-failed"] == "0"


@pytest.mark.parametrize("path", ["/health", "/metrics", "/info", "/v2/health/ready", "/docs"])
def test_head_is_get_without_the_body(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/health/", 404),
        ("POST", "/predict/", 404),
        ("GET", "/predict", 405),
        ("DELETE", "/info", 405),
    ],
)
def test_paths_that_are_not_there(client: httpx.Client, method: str, path: str, status: int) -> None:
    is_refused(client.request(method, path), status, path if status == 404 else method)


def test_what_the_server_says_of_itself(client: httpx.Client) -> None:
    info = client.get("/info").json()
    assert (info["name"], info["layers"], info["labels"]) == ("reviews", 4, ["bad", "good"])
    assert info["limits"]["max_inputs"] == 8
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/").status_code == 200
    predict(client, "dull")
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'offramp_requests_total{outcome="ok"}' in metrics.text


def test_the_description_is_of_what_is_served(client: httpx.Client) -> None:
    about = client.get("/openapi.json").json()
    assert {"/predict", "/v2/models/{name}/infer", "/info", "/metrics", "/health"} <= set(about["paths"])
    assert set(about["components"]["schemas"]["PredictRequest"]["properties"]) >= {"inputs", "truncate", "max_loss"}
    body = about["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/PredictRequest"}
    assert "securitySchemes" not in about["components"]
    for operation in (one for methods in about["paths"].values() for one in methods.values()):
        for status, answer in operation["responses"].items():
            shape = answer.get("content", {}).get("application/json", {}).get("schema", {})
            assert status == "200" or shape == {"$ref": "#/components/schemas/Problem"}


def test_the_description_as_a_page_needs_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "//" not in page.text.replace("http://127.0.0.1", "")
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in page.text


def test_cors_is_off(client: httpx.Client) -> None:
    answer = client.get("/health", headers={"origin": "https://elsewhere.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


def test_an_origin_may_be_let_in(calibrated: Path) -> None:
    waiting = Waiting(offramp.load(calibrated), open=True)
    settings = settings_of(calibrated, cors=("https://a.example",), api_keys=("secret",))
    with client_of(settings, waiting) as client:
        ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        allowed = client.options("/predict", headers={"origin": "https://a.example", **ask})
        assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        other = client.options("/predict", headers={"origin": "https://b.example", **ask})
        assert "access-control-allow-origin" not in other.headers


@pytest.fixture(scope="module")
def locked(calibrated: Path) -> Iterator[tuple[httpx.Client, Waiting]]:
    """A server with two keys."""
    waiting = Waiting(offramp.load(calibrated), open=True)
    with client_of(settings_of(calibrated, api_keys=("first", "second")), waiting) as client:
        yield client, waiting


@pytest.mark.parametrize(
    ("sent", "match"),
    [
        ({}, "an API key is needed"),
        ({"authorization": "Bearer wrong"}, "the API key is wrong"),
        ({"authorization": "Bearer firs"}, "the API key is wrong"),
        ({"authorization": "Bearer"}, "the API key is wrong"),
        ({"authorization": "Basic first"}, "the API key is wrong"),
        ({"authorization": "first"}, "the API key is wrong"),
    ],
    ids=str,
)
def test_without_the_key_nobody_is_let_in(
    locked: tuple[httpx.Client, Waiting], sent: dict[str, str], match: str
) -> None:
    client, waiting = locked
    before = waiting.started
    for path in ("/predict", "/v2/models/waiting/infer", "/page/trace"):
        refused = client.post(path, json={"inputs": "a"}, headers=sent)
        is_refused(refused, 401, match)
        assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/info", "/metrics", "/page/stats", "/page/about", "/v2", "/v2/models/waiting", "/nothing"):
        is_refused(client.get(path, headers=sent), 401, match)
    for path in ("/health", "/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json", "/", "/page/page.css"):
        assert client.get(path, headers=sent).status_code == 200
    assert waiting.started == before


@pytest.mark.parametrize("sent", ["Bearer first", "bearer second", "Bearer  second"])
def test_with_a_key_one_is(locked: tuple[httpx.Client, Waiting], sent: str) -> None:
    client, _ = locked
    assert client.post("/predict", json={"inputs": "a"}, headers={"authorization": sent}).status_code == 200
    about = client.get("/openapi.json", headers={"authorization": sent}).json()
    assert about["paths"]["/predict"]["post"]["security"] == [{"key": []}]
    assert "security" not in about["paths"]["/health"]["get"]


@pytest.mark.parametrize(
    ("error", "status", "match", "counted"),
    [
        (Overloaded(2.3), 429, "busy", "overloaded"),
        (TooLate(), 504, "deadline", "too_late"),
        (Closing(), 503, "shutting down", "closing"),
        (OfframpError("no such thing"), 422, "no such thing", "invalid"),
        (RuntimeError("a secret text"), 500, "the server failed", "failed"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else None,
)
def test_what_goes_wrong_inside_has_its_status(
    calibrated: Path, caplog: pytest.LogCaptureFixture, error: Exception, status: int, match: str, counted: str
) -> None:
    waiting = Waiting(offramp.load(calibrated), error, open=True)
    with client_of(settings_of(calibrated), waiting) as client:
        answer = predict(client, "another secret text")
        is_refused(answer, status, match)
        assert answer.headers.get("retry-after") == {429: "3", 503: "1"}.get(status)
        assert waiting.counted == {counted: 1}
    assert "secret" not in caplog.text
    assert ("RuntimeError" in caplog.text) == (status == 500)


def test_no_text_is_logged_but_a_line_for_each_request_may_be(
    calibrated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "offramp.access")
    with client_of(settings_of(calibrated, access_log=True)) as client:
        predict(client, "a secret text")
        client.post("/predict", content=b'{"inputs": "a secret text"', headers={"content-type": "application/json"})
        client.get("/info?a+secret+text")
        client.get("/no%0aline%20of%20ours")
    lines = [record.getMessage() for record in caplog.records if record.name == "offramp.access"]
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        "POST /predict 200",
        "POST /predict 422",
        "GET /info 200",
        r"GET /no\nline of ours 404",
    ]
    assert "secret" not in caplog.text


def test_a_request_may_give_up_sooner_but_not_later(calibrated: Path) -> None:
    waiting = Waiting(offramp.load(calibrated), open=True)
    with client_of(settings_of(calibrated, deadline=5.0), waiting) as client:
        for wish in ({}, {"timeout_s": 0.5}, {"timeout_s": 60}):
            predict(client, "a", **wish)
    assert waiting.deadlines == [5.0, 0.5, 5.0]


def test_what_is_not_allowed_is_not_done(calibrated: Path) -> None:
    with client_of(settings_of(calibrated, allow=("full_depth",))) as client:
        is_refused(predict(client, "a", max_loss=0.1), 422, "does not take max_loss: use full_depth")
        is_refused(predict(client, "a", policy="fixed(1)"), 422, "does not take policy")
        assert predict(client, "a", full_depth=True).headers["x-offramp-exit-layer"] == "4"


def test_a_model_without_a_promise_has_no_max_loss(tmp_path: Path) -> None:
    model = write(tiny_model("bert", layers=3), tmp_path / "plain", None)
    with client_of(settings_of(model)) as client:
        assert predict(client, "a").headers["x-offramp-exit-layer"] == "3"
        is_refused(predict(client, "a", max_loss=0.1), 422, "nothing is certified")


def test_numbers(tmp_path: Path) -> None:
    model = write(tiny_model("bert", layers=3, num_labels=1), tmp_path / "number", None)
    with client_of(settings_of(model)) as client:
        answer = predict(client, "a", details=True).json()
        [expected] = offramp.Engine(model, backend="torch")(["a"])
        assert answer["predictions"] == [{"label": "value", "score": pytest.approx(expected.label, abs=1e-5)}]
        assert answer["details"][0]["confidence"] is None
        assert predict(client, "a").headers["x-offramp-confidence"] == "-"


def test_where_pairs_were_trained_on_two_strings_are_one(tmp_path: Path) -> None:
    trained = {"name": "own", "text": "a", "text_pair": "b"}
    model = write(tiny_model("bert", layers=3), tmp_path / "pairs", trained)
    with client_of(settings_of(model)) as client:
        [expected] = offramp.Engine(model, backend="torch")([("first", "second")])
        found = predict(client, ["first", "second"]).json()
        assert found[0]["score"] == pytest.approx(expected.score, abs=1e-5)
        again = predict(client, [["first", "second"]]).json()
        assert scores(again) == pytest.approx(scores([found]), abs=1e-5)
        assert len(predict(client, ["a", "b", "c"]).json()) == 3


def test_where_single_texts_were_trained_on_pairs_are_refused(tmp_path: Path) -> None:
    model = write(tiny_model("bert", layers=3), tmp_path / "single", {"name": "own", "text": "a"})
    with client_of(settings_of(model)) as client:
        is_refused(predict(client, [["first", "second"]]), 422, "the model answers single texts")
        assert len(predict(client, ["first", "second"]).json()) == 2
