"""Finds the cases in --golden-dir, so that another folder of the same format runs unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.cases import GoldenCase
from tests.golden.left_out import reason_left_out


def find_cases(folder: Path) -> list[GoldenCase]:
    cases = [GoldenCase(path.parent) for path in sorted(folder.glob("*/manifest.json"))]
    if not cases:
        raise pytest.UsageError(f"--golden-dir {folder}: no */manifest.json in it")
    return cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test marked `golden(system, …, file=…)` runs once for each case of these systems that has the file."""
    if "case" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("golden")
    cases = find_cases(metafunc.config.getoption("--golden-dir"))
    if marker is not None:
        file = marker.kwargs.get("file", "manifest.json")
        cases = [c for c in cases if c.system in marker.args and (c.folder / file).is_file() and not reason_left_out(c)]
    metafunc.parametrize("case", cases, ids=[case.name for case in cases])
