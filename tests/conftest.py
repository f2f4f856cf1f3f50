"""Options and fixtures of the whole test suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.command_line import run
from tests.ray_here import ray_here

__all__ = ["ray_here", "run"]  # fixtures for every folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        default=Path(__file__).parent / "golden" / "data",
        help="folder of numbers made by the original programs (default: tests/golden/data)",
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--golden-dir")
    if not any(folder.glob("*/manifest.json")):
        raise pytest.UsageError(f"--golden-dir {folder}: no */manifest.json in it")


torch.set_num_threads(1)  # the models are tiny: threads only wait for each other, badly so on a busy machine


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Whatever a test asked for: with more threads, sums end in other bits."""
    yield
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _ctrl_c_as_usual() -> Iterator[None]:
    """Also where the test run itself was started in the background, with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _same_numbers_every_run() -> None:
    torch.manual_seed(0)
