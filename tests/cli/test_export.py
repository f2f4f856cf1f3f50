"""`offramp export`, as a user types it, and the folder on a machine that has neither offramp nor torch."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import offramp
from offramp.engine import Engine
from tests import tiny
from tests.command_line import Result
from tests.prediction.models import model_folder, write
from tests.tiny import tiny_gated_model, tiny_model

Run = Callable[..., Result]
ROOT = Path(__file__).parents[2]
MISSING = ("offramp", "torch", "transformers", "onnx")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


def loop_without(missing: tuple[str, ...], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The loop in a process that cannot import some modules."""
    script = ROOT / "examples" / "onnx_loop.py"
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({missing!r})); "
        f"sys.argv = {[str(script), *map(str, arguments)]!r}; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""})


def test_export_and_run_without_offramp_and_torch(folder: Path, tmp_path: Path, run: Run) -> None:
    done = run("export", folder, tmp_path / "out" / "exported", "--policy", "entropy(0.5)")
    assert done.status == 0, done.err
    assert re.fullmatch(
        r".*exported: 5 layers, 5 exits, classification, fp32, 0\.\d MB; leaves by entropy\(0\.5\)\n", done.out
    )
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["exported"]
    text = "a good film"
    [expected] = Engine(folder, "entropy(0.5)", "cpu", "fp32")([text])
    said = loop_without(MISSING, tmp_path / "out" / "exported", text)
    assert said.returncode == 0, said.stderr
    label, score, layer = said.stdout.rstrip("\n").split("\t")
    assert (label, layer) == (expected.label, f"layer {expected.exit_layer}")
    assert float(score) == pytest.approx(expected.score, abs=2e-4)
    assert loop_without((*MISSING, "numpy"), tmp_path / "out" / "exported", text).returncode != 0, "nothing is blocked"


@pytest.mark.parametrize("policy", ["patience(2)", "window(2)", "entropy(0.1) | patience(2)"])
def test_it_says_where_the_loop_is_not_enough(folder: Path, tmp_path: Path, run: Run, policy: str) -> None:
    done = run("export", folder, tmp_path / "exported", "--policy", policy)
    assert done.status == 0, done.err
    runs = loop_without(MISSING, tmp_path / "exported", "a good film").returncode == 0
    assert runs == (policy == "patience(2)")
    assert runs == ("onnx_loop.py cannot run it as it is: it knows entropy, confidence, patience" not in done.err)
    page = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert runs == ("has to be taught" not in page)


def test_overwriting(folder: Path, tmp_path: Path, run: Run) -> None:
    assert run("export", folder, tmp_path / "exported").status == 0
    refused = run("export", folder, tmp_path / "exported")
    assert (refused.status, refused.out) == (2, "")
    assert refused.err == (
        f"error: {tmp_path}/exported exists and is not empty: name another folder, or say --overwrite\n"
    )
    done = run("export", folder, tmp_path / "exported", "--overwrite", "--precision", "int8")
    assert "classification, int8" in done.out
    refused = run("export", folder, folder, "--overwrite")
    assert refused.err == f"error: {folder} is not an exported folder: nothing in it will be overwritten\n"
    assert offramp.load(folder).backbone.depth == 5


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("nowhere", (), "nowhere"),
        ("gated", (), "gated cannot be exported: gates decide for each input what is computed"),
        ("swish", (), "swish cannot be exported: its activation 'silu' has no ONNX operator here"),
        ("wordless", (), "there is no tokenizer in"),
        ("model", ("--precision", "bf16"), "precision 'bf16': what is exported is fp32 or int8"),
        ("model", ("--policy", "entropie(0.1)"), "unknown policy 'entropie'"),
        ("model", ("--policy", "fixed(9)"), "no exit there"),
        ("model", ("--max-length", "4000"), "max length 4000: the model takes 8 to 40 tokens"),
    ],
)
def test_refusals(
    source: str,
    options: tuple[str, ...],
    message: str,
    folder: Path,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if source == "gated":
        write(tiny_gated_model(), tmp_path / "gated", None)
    if source == "swish":
        monkeypatch.setitem(tiny.SHAPE, "hidden_act", "silu")
        write(tiny_model(), tmp_path / "swish", None)
    if source == "wordless":
        tiny_model().save_pretrained(tmp_path / "wordless")
    refused = run("export", tmp_path / source, tmp_path / "new", *options)
    assert (refused.status, refused.out) == (2, "")
    assert message in refused.err
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1
    assert not list(tmp_path.glob("*new*"))


def test_commands_of_the_page_run(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    model_folder(tmp_path / "runs" / "reviews")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
    listed = re.findall(r"^offramp (export .*)$", page, re.MULTILINE)
    assert len(listed) >= 2
    for line in listed:
        done = run(*shlex.split(line))
        assert done.status == 0, f"{line}\n{done.err}"
