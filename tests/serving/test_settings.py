"""What an operator can set, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offramp import OfframpError
from offramp.serving.settings import Settings, names_of, read_keys


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"engine": "dask"}, "engine 'dask': use local or ray"),
        ({"allow": ("max_loss", "all")}, "'all': use max_loss, policy, full_depth, or none"),
        ({"name": "org/model"}, "a model named 'org/model' .*: give a --name without a /"),
        ({"audit": 1.5}, "an audit of 1.5"),
        ({"max_inputs": 300, "max_queue": 200}, "300 texts, but 200 may wait"),
        ({"api_keys": ("",)}, "one word of printable ASCII"),
        ({"api_keys": ("two words",)}, "one word of printable ASCII"),
        ({"api_keys": ("schlüssel",)}, "one word of printable ASCII"),
        ({"min_replicas": 3}, "at most 2 replicas, but at least 3"),
    ],
    ids=str,
)
def test_settings_that_cannot_be(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(OfframpError, match=match) as refused:
        Settings("model", **changed)
    assert "two words" not in str(refused.value)
    assert "schlüssel" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "keys", "open"),
    [("127.0.0.1", (), False), ("::1", (), False), ("0.0.0.0", (), True), ("0.0.0.0", ("key",), False)],
)
def test_who_can_come_in(host: str, keys: tuple[str, ...], open: bool) -> None:
    assert Settings("model", host=host, api_keys=keys).open_to_others == open


def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("first\n\n second \n")
    assert read_keys([], file) == ("first", "second")
    assert read_keys(["own"], file) == ("own", "first", "second")
    assert read_keys(["own"], None) == ("own",)
    file.write_text("\n")
    with pytest.raises(OfframpError, match="holds no API key: write one a line"):
        read_keys([], file)
    with pytest.raises(OfframpError, match="cannot be read"):
        read_keys([], tmp_path / "none")


@pytest.mark.parametrize(("given", "names"), [("none", ()), ("a", ("a",)), (" a, b ,", ("a", "b")), ("", ())])
def test_lists_as_they_are_typed(given: str, names: tuple[str, ...]) -> None:
    assert names_of(given) == names
