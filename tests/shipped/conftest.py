"""A box of stand-ins, in place of the models that the package comes with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from offramp import shipped
from tests.shipped.made_box import contents, make_box


@pytest.fixture(scope="session")
def made_box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_box(tmp_path_factory.mktemp("shipped"))


@pytest.fixture
def box(made_box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The box, from an empty folder; whatever a test does, nothing in it changes, and nobody asks the hub."""

    def no_hub(*args: object, **kwargs: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(shipped, "BOX", made_box)
    monkeypatch.setattr("huggingface_hub.snapshot_download", no_hub)
    monkeypatch.setattr("socket.socket.connect", no_hub)
    monkeypatch.setattr("socket.getaddrinfo", no_hub)
    monkeypatch.chdir(tmp_path)
    before = contents(made_box)
    yield made_box
    assert contents(made_box) == before
