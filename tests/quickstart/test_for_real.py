"""The quickstart that a user sees: the model in the box, all rows, in a process of its own that no network answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOWHERE = "http://127.0.0.1:9"
"""Nobody listens there."""


@pytest.mark.slow
def test_quickstart(tmp_path: Path) -> None:
    cut_off = {"HTTP_PROXY": NOWHERE, "HTTPS_PROXY": NOWHERE, "HF_HOME": str(tmp_path / "hub")}
    command = [sys.executable, "-m", "offramp", "quickstart"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | cut_off, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "runs" / "quickstart" / "quickstart.json").read_text())
    assert found["full_depth"]["accuracy"] > 0.8
    assert found["full_depth"]["accuracy"] - found["calibrated"]["scores"]["accuracy"] < 0.02
    assert found["calibrated"]["cost"] < 0.7
    assert found["speed"]["speed_up"] > 1.2
    assert found["layers_by_grade"]["plain"] < found["layers_by_grade"]["argued"]
