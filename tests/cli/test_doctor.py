"""`offramp doctor`: what it prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offramp import shipped
from offramp.doctor import Examination, Finding, libraries
from offramp.doctor.findings import better, broken
from offramp.engine import processor
from tests.command_line import Result
from tests.tiny import tiny_model

FINE = Finding("machine", "cores", "2 may be used")
FOUND = {
    "fine": (FINE,),
    "better": (FINE, better("libraries", "onnx", "onnx missing", "pip install 'offramp[onnx]'")),
    "broken": (FINE, broken("libraries", "torch", "1.9 [old]", "pip install 'torch>=2.11'")),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_is_found_is_shown(what: str, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.doctor.examine", lambda watch: Examination(FOUND[what]))
    done = run("doctor")
    assert done.status == (1 if what == "broken" else 0)
    lines = [line.split() for line in done.out.splitlines()]
    for one in FOUND[what]:
        assert [*one.name.split(), *one.value.split()] in lines
        assert not one.advice or f"{one.name}: {one.advice}" in done.out
    assert ("Nothing is broken" in done.out) == (what == "fine")
    assert ("What would help" in done.out) == (what == "better")


def test_json_of_this_machine(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Everything for real, but for what is tried in other processes, and the models."""
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(processor, "works", lambda *args, **kwargs: True)
    monkeypatch.setattr(shipped, "BOX", tmp_path)
    tiny_model().save_pretrained(tmp_path / "offramp-tiny")
    done = run("doctor", "--json")
    assert done.status == 0, done.out
    found = json.loads(done.out)
    assert found["broken"] == 0
    assert not [one for one in found["findings"] if one["state"] == "unknown"]
    parts = list(dict.fromkeys(one["part"] for one in found["findings"]))
    assert parts == ["machine", "libraries", "what offramp uses", "models in the box", "folders"]
    assert {"processor", "torch", "threads", "offramp-tiny", "downloads"} <= {one["name"] for one in found["findings"]}
