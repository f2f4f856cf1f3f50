"""Bodies that nobody would send on purpose: each has an answer, none is a 500, and nothing stays behind."""

from __future__ import annotations

import copy
import json
import random
import string
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

from tests.serving.http_server import client_of, settings_of, until

FEW, MANY = 300, pytest.param(10_000, marks=pytest.mark.slow)
TENSOR = {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a fine film", "dull"]}
VALID: list[tuple[str, Any]] = [
    ("/predict", {"inputs": "a fine film", "truncate": True, "raw_scores": False}),
    ("/predict", {"inputs": ["a fine film", ["dull"], ["one", "other"]], "details": True, "max_loss": 0.05}),
    ("/predict", {"inputs": "dull", "policy": "entropy(0.3)", "timeout_s": 5}),
    ("/v2/models/reviews/infer", {"id": "1", "inputs": [TENSOR], "outputs": [{"name": "label"}]}),
    ("/v2/models/reviews/infer", {"inputs": [TENSOR], "parameters": {"full_depth": True, "truncate": False}}),
    ("/page/trace", {"text": "a fine film", "point": 0}),
]
STRANGE = [
    None,
    True,
    -1,
    0,
    1e308,
    10**400,
    "",
    "\u0000",
    "\ud83d\ude00",
    "\u202e",
    "a" * 70_000,
    [],
    {},
    [[]],
    [[[]]],
    "NaN",
]
POLICIES = [
    "entropy(",
    "fixed(0)",
    "fixed(99)",
    "patience(-1)",
    "a|b",
    "entropy(nan)",
    "entropy(1e999)",
    "((((",
    "x" * 5000,
]
LITERALS = [
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e999",
    b"[" * 3000,
    b"{" * 3000,
    b'"\\ud800"',
    b'"\\u0000"',
    b"\xff",
    b"\xef\xbb\xbf",
]
KINDS = ["application/json"] * 8 + [
    "text/plain",
    "",
    "application/json; charset=latin-1",
    "multipart/form-data",
    "\x01",
]
TOO_LARGE = 413
CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


@pytest.fixture(scope="module")
def client(calibrated: Path) -> Iterator[httpx.Client]:
    with client_of(settings_of(calibrated, max_inputs=1000, max_body=50_000)) as client:
        yield client


def mutated(draw: random.Random) -> tuple[str, bytes]:
    """A request that was right once."""
    path, body = draw.choice(VALID)
    body = json.loads(json.dumps(body))
    for _ in range(draw.choice([0, 1, 1, 2, 4])):
        _replace_somewhere(body, draw)
    sent = json.dumps(body, ensure_ascii=draw.random() < 0.5).encode(errors="surrogatepass")
    for _ in range(draw.choice([0, 0, 1, 1, 3, 20])):
        place, kind = draw.randrange(len(sent) + 1), draw.randrange(5)
        junk = draw.choice(
            [bytes([draw.randrange(256)]), draw.choice(LITERALS), draw.choice(string.punctuation).encode()]
        )
        if kind == 0:
            sent = sent[:place] + junk + sent[place:]
        elif kind == 1:
            sent = sent[:place] + sent[place + draw.randrange(1, 9) :]
        elif kind == 2:
            sent = sent[:place]
        elif kind == 3:
            sent = sent[:place] + junk + sent[place + len(junk) :]
        else:
            sent = sent[:place] + sent[place // 2 :]
    return path, sent


def _replace_somewhere(body: Any, draw: random.Random) -> None:
    """Change, add or delete something inside, as deep as it happens to be."""
    while True:
        keys = list(body) if isinstance(body, dict) else list(range(len(body)))
        if not keys or draw.random() < 0.2:
            if isinstance(body, dict):
                body[draw.choice(["inputs", "max_loss", "policy", "x", "", "shape", "data"])] = _strange(draw)
            else:
                body.append(_strange(draw))
            return
        key = draw.choice(keys)
        if isinstance(body[key], dict | list) and draw.random() < 0.7:
            body = body[key]
            continue
        if draw.random() < 0.15:
            del body[key]
        else:
            body[key] = draw.choice(POLICIES) if key == "policy" else _strange(draw)
        return


def _strange(draw: random.Random) -> Any:
    return copy.deepcopy(draw.choice(STRANGE))


def is_answered(client: httpx.Client, path: str, body: bytes, kind: str = "application/json") -> int:
    headers = {"content-type": kind} if kind and kind.isprintable() else {}
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code in (200, 413, 415, 422, 504), (path, body[:300], answer.status_code, answer.text[:300])
    said = answer.json()
    if answer.status_code != 200:
        assert set(said) == {"error", "error_type"}
        assert len(said["error"]) < 1000
    return answer.status_code


@pytest.mark.parametrize("bodies", [FEW, MANY])
def test_requests_that_were_right_once(client: httpx.Client, bodies: int) -> None:
    draw = random.Random(7)
    process = psutil.Process()
    for _ in range(50):  # what is kept for ever is kept by now
        is_answered(client, *mutated(draw))
    before = process.memory_info().rss, process.num_fds(), process.num_threads()
    seen = Counter(is_answered(client, *mutated(draw), draw.choice(KINDS)) for _ in range(bodies))
    assert seen[200] > bodies // 50
    assert seen[422] > bodies // 4
    until(lambda: "offramp_queue_rows 0.0" in client.get("/metrics").text)
    assert process.num_fds() <= before[1] + 2
    assert process.num_threads() <= before[2] + 2
    assert process.memory_info().rss < before[0] + 60 * 2**20
    assert client.post("/predict", json={"inputs": "a fine film"}).status_code == 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=[]), max_size=20),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=10), inside, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    body=st.binary(max_size=200)
    | JSON
    | st.fixed_dictionaries({"inputs": JSON}, optional={"max_loss": JSON, "policy": JSON})
)
def test_any_bytes_and_any_json(client: httpx.Client, body: Any) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    for path in ("/predict", "/v2/models/reviews/infer", "/page/trace"):
        is_answered(client, path, sent)


@pytest.mark.parametrize("examples", [10, pytest.param(700, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value)
def test_what_the_description_says_holds(client: httpx.Client, mode: GenerationMode, examples: int) -> None:
    """schemathesis makes requests by the description, right and wrong ones, and compares the answers with it."""
    load_all_checks()
    address = str(client.base_url).rstrip("/")
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= 10
    checked: list[str] = []
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # there is nothing to get wrong

        @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            answer = case.call(base_url=address, timeout=20)
            if answer.status_code != TOO_LARGE:  # which schemathesis does not take for a refusal
                case.validate_response(answer, checks=CHECKS)
            assert answer.status_code < 500 or answer.status_code == 504, answer.text  # a deadline may be very near

        check()
        checked.append(operation.path)
    assert {"/predict", "/v2/models/{name}/infer"} <= set(checked)
