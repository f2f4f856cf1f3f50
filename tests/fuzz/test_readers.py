"""No reader answers a strange file with a traceback, a hang, or fewer rows than it has."""

from __future__ import annotations

import logging

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.changes import near
from tests.fuzz.readers import TARGETS

SLOW_TO_OPEN = {"config", "safetensors", "pickle", "shards", "tokenizer", "tokenizer-settings", "vocabulary"}
LONGEST = 10_000
"""Milliseconds a reader may take: no file here is longer than some kilobytes."""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("name", TARGETS)
def test_a_good_file_is_taken(name: str) -> None:
    assert TARGETS[name].check(TARGETS[name].seeds()[0])


@pytest.mark.parametrize("name", TARGETS)
def test_strange_files(name: str) -> None:
    taken = {True: 0, False: 0}

    @settings(
        max_examples=30 if name in SLOW_TO_OPEN else 100,
        deadline=LONGEST,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(near(TARGETS[name]))
    def check(data: bytes) -> None:
        taken[TARGETS[name].check(data)] += 1

    check()
    assert taken[False], "nothing was refused: the files are not strange enough"
