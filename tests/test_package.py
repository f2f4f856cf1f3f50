"""The package as a whole: what it exports, and what it needs to be imported."""

from __future__ import annotations

import subprocess
import sys

import offramp

PARTS = ("backbones", "models", "recipes", "policies", "engine", "calibration")
CORE = ("offramp", *(f"offramp.{part}" for part in PARTS))
EXTRAS = ("datasets", "sklearn", "pandas", "matplotlib", "plotly", "fastapi", "ray", "onnx", "onnxruntime", "typer")


def test_public_names_exist() -> None:
    assert all(hasattr(offramp, name) for name in offramp.__all__)


def test_the_core_imports_no_extra() -> None:
    """With every extra made unimportable, the core still works: it can be embedded anywhere."""
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); import {', '.join(CORE)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
