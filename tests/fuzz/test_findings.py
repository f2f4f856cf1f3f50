"""What fuzzing found, once each: files that a reader once answered with a traceback, a hang, or too few rows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from offramp.errors import OfframpError
from offramp.policies import policy_from_text
from offramp.tasks.files import LONGEST_LINE
from offramp.tasks.tables import read_table
from offramp.typed_json import read_object, typed
from tests.fuzz.readers import TARGETS

DEEP = b'{"a":' * 5000
LONG = b"a" * 300
STRANGE = "é\u2028\n"


def changed(name: str, *keys: Any, to: Any, seed: int = 0) -> bytes:
    """A good file with one value replaced."""
    document = json.loads(TARGETS[name].seeds()[seed])
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return json.dumps(document).encode()


def without(name: str, *keys: Any) -> bytes:
    document = json.loads(TARGETS[name].seeds()[0])
    place = document
    for key in keys[:-1]:
        place = place[key]
    del place[keys[-1]]
    return json.dumps(document).encode()


def two_columns_of_one_name() -> bytes:
    sink = io.BytesIO()
    columns = [arrow.array(["a", "b"]), arrow.array(["c", "d"]), arrow.array([0, 1])]
    parquet.write_table(arrow.Table.from_arrays(columns, ["text", "text", "label"]), sink)
    return sink.getvalue()


FOUND: list[tuple[str, str, Callable[[], bytes]]] = [
    *((name, "values too deep", lambda: DEEP) for name in ("policy", "manifest", "results", "times", "plan", "curve")),
    ("tokenizer", "values too deep", lambda: DEEP),
    ("jsonl", "a name twice: the first value was dropped", lambda: b'{"text": "a", "text": "b", "label": 0}\n' * 4),
    ("json", "a name twice", lambda: b'[{"text": "a", "text": "b", "label": 0}]'),
    ("parquet", "a column twice: the first was dropped", two_columns_of_one_name),
    ("policy-text", "parentheses in parentheses", lambda: b"(" * 300 + b"fixed(1)" + b")" * 300),
    ("policy-text", "very many rules", lambda: b" | ".join([b"fixed(1)"] * 3000)),
    ("policy", "a number that fits no tensor", lambda: b'{"policy": "patience", "patience": 1e1, "tolerance": null}'),
    ("policy", "a whole number that fits no tensor", lambda: b'{"policy": "patience", "patience": 1%s}' % (b"0" * 40)),
    ("certificate", "quantiles of another number", lambda: changed("certificate", *QUANTILES, to=[0.5])),
    ("certificate", "quantiles that are none", lambda: changed("certificate", *QUANTILES, 3, to=None)),
    ("certificate", "no counts", lambda: without("certificate", "certificate", "reference", "exits")),
    ("certificate", "no risk", lambda: without("certificate", "certificate", "found", "risk")),
    ("certificate", "no rows", lambda: changed("certificate", "certificate", "data", "rows", to=0)),
    ("certificate", "data that are none", lambda: changed("certificate", "certificate", "data", to=7)),
    ("certificate", "a policy that is none", lambda: changed("certificate", "policy", to={"policy": 7})),
    ("certificate", "a limit in a list", lambda: changed("certificate", "certificate", "promise", "limit", to=[1])),
    ("config", "a million layers: hours", lambda: changed("config", "num_hidden_layers", to=10**6, seed=2)),
    ("config", "two billion labels: hours", lambda: changed("config", "num_labels", to=2**31)),
    ("config", "a million groups: hours", lambda: changed("config", "num_hidden_groups", to=10**6, seed=4)),
    ("config", "heads below none", lambda: changed("config", "backbone_config", "num_attention_heads", to=-1)),
    ("config", "exits without classifiers", lambda: changed("config", "classifiers", to=[])),
    ("shards", "a part that is no name", lambda: b'{"weight_map": {"a": 7, "b": "x"}}'),
    ("shards", "a part in another folder", lambda: b'{"weight_map": {"a": "../x.safetensors"}}'),
    ("shards", "a name that no file can have", lambda: b'{"weight_map": {"a": "%s"}}' % LONG),
    ("shards", "a name of two lines", lambda: json.dumps({"weight_map": {"a": STRANGE}}).encode()),
    ("pickle", "an empty stack", lambda: b"\x80\x02."),
    ("tokenizer", "a kind of tokenizer that is none", lambda: changed("tokenizer", "model", "type", to=None)),
    ("tokenizer", "words that are a number", lambda: changed("tokenizer", "model", "vocab", to=3)),
    ("tokenizer-settings", "a class that is no text", lambda: changed("tokenizer-settings", "tokenizer_class", to=7)),
    ("vocabulary", "no word for unknown ones", lambda: b"a\nb\n"),
    ("training", "a task that is none", lambda: b'{"task": {"name": {"a": 1}}}'),
    ("training", "an option that is none", lambda: b'{"task": {"data": "x.csv", "dev_]share": 1}}'),
    ("results", "a name that is none", lambda: changed("results", "name", to=["a"])),
    ("results", "no exits", lambda: changed("results", "exits", to=[])),
    ("times", "times that are texts", lambda: changed("times", "workloads", 0, "rounds", to="a")),
    ("times", "a fastest that was not timed", lambda: changed("times", "workloads", 0, "fastest", to="x")),
    ("trace", "a damaged stream", lambda: TARGETS["trace"].seeds()[0].replace(b"\x78", b"\x79")[:-200]),
    ("trace-about", "layers that are none", lambda: changed("trace-about", "exit_layers", to=[1, 2, None])),
    ("trace-about", "a model of no heads", lambda: changed("trace-about", "shape", "heads", to=0)),
    ("trace-about", "memory without bounds", lambda: changed("trace-about", "exit_layers", to=[1, 2, 2**40])),
    ("plan", "a seed that is none", lambda: changed("plan", "seed", to="a")),
    ("manifest", "a file elsewhere: its parts would have been removed", lambda: _elsewhere()),
    ("receipts", "bytes that are no text", lambda: b'{"source": "\x85"}\n'),
    ("receipts", "a source that is none", lambda: b'{"source": {}, "number": 0, "rows": 1, "last": true}\n'),
    (
        "receipts",
        "a name that no file can have",
        lambda: b'{"source": "%s", "number": 0, "rows": 1, "last": true}\n' % LONG,
    ),
    ("receipts", "a number that is none", lambda: b'{"source": "a.csv", "number": "0", "rows": 1, "last": true}\n'),
]
QUANTILES = ("certificate", "reference", "confidence")


def _elsewhere() -> bytes:
    return json.dumps({"settings": {}, "sources": {"../../x": {"size": 1, "changed": 1}}}).encode()


@pytest.mark.parametrize(("name", "what", "data"), FOUND, ids=[f"{name}: {what}" for name, what, _ in FOUND])
def test_is_refused(name: str, what: str, data: Callable[[], bytes]) -> None:
    assert not TARGETS[name].check(data())


def test_parquet_that_holds_fewer_rows_than_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of the table of contents is enough, and Arrow says nothing."""
    (tmp_path / "x.parquet").write_bytes(TARGETS["parquet"].seeds()[0])
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", lambda self, size: iter(()))
    with pytest.raises(OfframpError, match=r"x\.parquet is damaged: it says 3 rows, and holds 0"):
        list(read_table(tmp_path / "x.parquet"))


@pytest.mark.parametrize("text", ["{", "[1]", "7", "\ufeff{}", '{"a": NaN'])
def test_no_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"."):
        read_object(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (int, True, "it is True: expected a whole number"),
        (int, 1.0, "it is 1.0: expected a whole number"),
        (float, "1", "it is '1': expected a number"),
        (list[int], {}, "it is an object: expected a list"),
        (dict[int, int], {"a": 1}, "a is 'a': expected a whole number"),
        (dict[str, list[float | None]], {"a": [1, None, "b"]}, r"a\[2\] is 'b': expected a number"),
        (tuple[str, ...], ["a", None], r"\[1\] is None: expected a text"),
    ],
)
def test_what_does_not_fit_is_named(kind: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        typed(kind, value)


def test_what_fits_is_kept() -> None:
    assert typed(dict[int, tuple[float, ...]], {"3": [1, 2.5]}) == {3: (1, 2.5)}
    assert typed(str | None, None) is None


def test_a_message_is_one_line_whatever_it_quotes() -> None:
    assert str(OfframpError("no column 'a\r\nb'")) == "no column 'a\\r\\nb'"
    with pytest.raises(OfframpError) as told:
        policy_from_text("entropy(\n")
    assert "\n" not in str(told.value)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl"])
def test_a_line_of_a_gigabyte(suffix: str, tmp_path: Path) -> None:
    """It is refused, and no more of it is held than the longest line that is taken."""
    resource = pytest.importorskip("resource", reason="memory is limited on Unix only")
    path = tmp_path / f"long.{suffix}"
    with path.open("wb") as file:
        file.write(b'{"text": "' if suffix == "jsonl" else b"text\n")
        for _ in range(1024):
            file.write(b"a" * 2**20)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + 6 * LONGEST_LINE, before[1]))
    try:
        with pytest.raises(OfframpError, match="a line of more than 128 MB"):
            list(read_table(path))
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
