"""Ray on this machine, small: one cluster for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray_here() -> Iterator[Any]:
    """A cluster of its own, whatever else runs here; it looks for nobody and tells nobody."""
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
        patch.delenv("RAY_ADDRESS", raising=False)
        small: dict[str, Any] = {"num_cpus": 4, "object_store_memory": 100 * 2**20, "include_dashboard": False}
        ray.init(address="local", log_to_driver=False, logging_level="ERROR", **small)
        try:
            yield ray
        finally:
            ray.shutdown()
