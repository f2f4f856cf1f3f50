"""Finds the cases in --golden-dir, so that another folder of the same format runs unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.cases import GoldenCase


def find_cases(folder: Path) -> list[GoldenCase]:
    return [GoldenCase(path.parent) for path in sorted(folder.glob("*/manifest.json"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `golden(system, …, needs=…)` runs once for each case of these systems that has such an array."""
    if "case" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("golden")
    cases = find_cases(metafunc.config.getoption("--golden-dir"))
    if marker is not None:
        needed = re.compile(marker.kwargs["needs"])
        cases = [case for case in cases if case.system in marker.args and any(map(needed.match, case.array_names()))]
    metafunc.parametrize("case", cases, ids=[case.name for case in cases])
