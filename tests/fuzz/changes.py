"""Files near to good ones: bytes changed here and there, or values of a JSON document replaced by strange ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.contract import Target

PIECES = [
    *(b"\0", b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1a", b"\xc3", b"\xed\xa0\x80", b"\x80"),
    *(b"\n", b"\r\n", b"\r", b"\n\n", b"\t", b"\t\t\t", b",", b",,", b'"', b'""', b'"""', b"'", b"\\", b"\xe2\x80\xa8"),
    *(b"{", b"}", b"[", b"]", b":", b"null", b"NaN", b"-Infinity", b"1e999", b"9" * 400, b'"\\ud800"', b"[" * 5000),
    *(b"true", b"-1", b"0", b"{}", b"[]", b'{"a":' * 2000),
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 2**63, 10**30, -(2**70), 0.5, -0.5, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "a", "0", "-1", "1e9", "nan", "\0", "\ud800", "é\u2028\n"),
    *("a" * 300, "../../etc/passwd", "/", ".", "bert", "classification", [], {}, [[]], [0], [None], [1, "a"]),
    *({"": None}, {"a": 1}, {"0": 0}, [{}], [1, 2, 3, 4], ["a", "a"], [True], [[1], [2]]),
]


def near(target: Target) -> st.SearchStrategy[bytes]:
    """Files to try a target with."""
    seeds = target.seeds()
    bytewise = st.builds(_edited, st.sampled_from(seeds), st.lists(_edits(), max_size=4))
    if target.shape == "json":
        documents = [json.loads(seed) for seed in seeds]
        return bytewise | st.builds(_as_bytes, _odd_json(documents), st.booleans())
    if target.shape == "lines":
        lines = [[json.loads(line) for line in seed.splitlines()] for seed in seeds]
        return bytewise | _odd_json(lines).map(_as_lines)
    return bytewise


def _edits() -> st.SearchStrategy[tuple[str, float, float, bytes]]:
    place = st.floats(0, 1, exclude_max=True)
    piece = st.sampled_from(PIECES) | st.binary(max_size=8)
    return st.tuples(st.sampled_from(["insert", "delete", "replace", "cut", "twice", "flip"]), place, place, piece)


def _edited(seed: bytes, edits: Sequence[tuple[str, float, float, bytes]]) -> bytes:
    data = seed
    for kind, where, how_much, piece in edits:
        start = int(where * (len(data) + 1))
        end = start + int(how_much * how_much * (len(data) - start + 1))
        if kind == "insert":
            data = data[:start] + piece + data[start:]
        elif kind == "delete":
            data = data[:start] + data[end:]
        elif kind == "replace":
            data = data[:start] + piece + data[start + len(piece) :]
        elif kind == "cut":
            data = data[:start]
        elif kind == "twice":
            data = data[:end] + data[start:]
        elif start < len(data):
            data = data[:start] + bytes([data[start] ^ (1 << int(how_much * 8))]) + data[start + 1 :]
    return data


@st.composite
def _odd_json(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            return document
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        change = draw(st.sampled_from(["value", "value", "delete", "name", "twice", "number"]))
        if change == "delete":
            del holder[key]
        elif change == "name" and isinstance(holder, dict):
            holder[draw(st.sampled_from(["", "x", "é", "0"]))] = holder.pop(key)
        elif change == "twice" and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif change == "number":
            holder[key] = draw(st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=6))
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in a document, as what holds it and its key there."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in list(items):
        yield document, key
        yield from _places(value)


def _as_bytes(document: Any, ascii: bool) -> bytes:
    return json.dumps(document, ensure_ascii=ascii).encode("utf-8", "surrogatepass")


def _as_lines(documents: Any) -> bytes:
    return b"".join(_as_bytes(document, True) + b"\n" for document in documents)
