"""The models that the package really comes with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoTokenizer

import offramp
from offramp import shipped
from tests.command_line import Result, run  # noqa: F401

NAMES = shipped.shipped_names()
LARGEST = 64e6
"""Bytes, all of them together."""


def test_they_are_small() -> None:
    assert {"offramp-mini", "offramp-mini-sst2"} <= set(NAMES)
    assert sum(file.stat().st_size for file in shipped.BOX.rglob("*") if file.is_file()) <= LARGEST


@pytest.mark.parametrize("name", NAMES)
def test_they_open_by_name(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path(shipped.resolve(name))
    with safe_open(folder / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(key).dtype for key in weights.keys()} == {torch.float16}  # noqa: SIM118
    model = offramp.load(name)
    assert len(model.exits) == model.backbone.depth == 12
    assert model.dtype == torch.float32
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) <= model.backbone.vocab_size
    assert "/" not in "".join(tokenizer.tokenize("A clumsy film"))
    for word in ("/home", "/tmp", "/work"):  # where they were made is nobody's business
        assert not any(word in file.read_text(encoding="utf-8") for file in folder.glob("*.json"))
        assert word not in (folder / "README.md").read_text(encoding="utf-8")


def test_the_first_command_answers(
    run: Callable[..., Result],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("predict", "offramp-mini-sst2", "a clumsy, tiresome film that wastes a good cast")
    assert done.status == 0, done.err
    assert "negative" in done.out
    assert "at most 1 % of accuracy is lost, with 95 % confidence" in done.err + done.out
