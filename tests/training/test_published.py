"""What is known of a backbone before it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from offramp.training.published import backbone_family


def test_family_of_a_hub_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    monkeypatch.setattr("offramp.training.published.snapshot_download", lambda name, allow_patterns: str(tmp_path))
    assert backbone_family("somebody/encoder") == "albert"


def test_without_a_network_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is asked once; loading will say that there is no such model."""
    asked: list[str] = []

    def no_network(name: str, allow_patterns: list[str]) -> str:
        asked.append(name)
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr("offramp.training.published.snapshot_download", no_network)
    assert backbone_family("somebody/encoder") == "bert"
    assert asked == ["somebody/encoder"]
