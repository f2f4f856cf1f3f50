"""A precision that ends the process is found out by another process, once."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from offramp import OfframpError
from offramp.engine import Engine, processor
from offramp.tasks.encoding import Row
from tests.tiny import tiny_model

ROW = Row([4, 5, 6, 7])

DIES = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
DIES_UNCAPPED = f"import os\nif os.environ.get('{processor.CAP}') != '{processor.CAPPED}': os.abort()"


@pytest.fixture(autouse=True)
def no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(processor.CAP, "")
    monkeypatch.delenv(processor.CAP)
    return tmp_path / "offramp"


def trying(monkeypatch: pytest.MonkeyPatch, program: str, precision: str = "bf16") -> list[bool]:
    """Let the child process run this program; told is how often, and whether capped."""
    tried, real = [], processor.try_it

    def counted(precision: str, capped: bool) -> bool:
        tried.append(capped)
        return real(precision, capped)

    monkeypatch.setitem(processor.TRIES, precision, program)
    monkeypatch.setattr(processor, "try_it", counted)
    return tried


def test_what_works_is_tried_once(monkeypatch: pytest.MonkeyPatch, no_memory: Path) -> None:
    tried = trying(monkeypatch, "pass")
    processor.check_works("bf16")
    processor.check_works("bf16")
    assert tried == [False]
    assert processor.CAP not in os.environ
    next(no_memory.iterdir()).write_text("damaged")
    processor.check_works("bf16")
    assert tried == [False, False]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_precision_that_kills_is_refused_in_one_line(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trying(monkeypatch, DIES, precision)
    for _ in range(2):
        with pytest.raises(OfframpError, match=f"{precision} does not work on this processor.*: use fp32"):
            Engine(tiny_model(), device="cpu", precision=precision)
    Engine(tiny_model(), device="cpu", precision="fp32")


def test_bf16_is_capped_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = trying(monkeypatch, DIES_UNCAPPED)
    processor.check_works("bf16")
    assert os.environ[processor.CAP] == processor.CAPPED
    assert tried == [False, True]
    processor.check_works("bf16")
    assert tried == [False, True, False], "under the cap it is another processor, and that one works"
    processor.check_works("bf16")
    assert len(tried) == 3


BEGUN = f"{DIES_UNCAPPED}\nif 'offramp' in __import__('sys').modules: "
"""A try that ends well in a process of its own, and in one that has begun without the cap ..."""


@pytest.mark.parametrize("then", ["os.abort()", "raise ValueError", "__import__('time').sleep(60)"])
def test_bf16_is_refused_where_this_process_has_begun_without_the_cap(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN reads the cap once, with its first product in whatever precision."""
    monkeypatch.setattr(processor, "SECONDS_HERE", 3)
    trying(monkeypatch, BEGUN + then)
    for _ in range(2):
        with pytest.raises(
            OfframpError, match=f"this process has begun with it: set {processor.CAP}={processor.CAPPED}"
        ):
            processor.check_works("bf16")
        assert processor.CAP not in os.environ


def test_another_runtime_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    place = processor.memory_file()
    monkeypatch.setattr(processor, "onnx_runtime", lambda: "99.0")
    assert processor.memory_file() != place


@pytest.mark.parametrize("program", ["raise ImportError('no such library')", "import sys; sys.exit(3)"])
def test_an_accident_is_told_and_not_remembered(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trying(monkeypatch, program)
    with pytest.raises(OfframpError, match="bf16 could not be tried on this processor"):
        processor.check_works("bf16")
    monkeypatch.setitem(processor.TRIES, "bf16", "pass")
    processor.check_works("bf16")


def test_a_try_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "SECONDS", 0.2)
    trying(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(OfframpError, match="bf16 could not be tried"):
        processor.check_works("bf16")


def test_a_home_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "offramp").write_text("a file where the folder should be")
    tried = trying(monkeypatch, "pass")
    processor.check_works("bf16")
    processor.check_works("bf16")
    assert tried == [False, False]


def test_the_real_tries_tell_the_truth() -> None:
    """Whatever this processor does, the process that asks survives it."""
    for precision in processor.TRIES:
        assert processor.works(precision) in (True, False)
    if processor.works("bf16"):
        model = tiny_model()
        [exact] = Engine(model, "fixed(2)", "cpu", "fp32", "torch").answer_rows([ROW])
        [rounded] = Engine(model, "fixed(2)", "cpu", "bf16", "torch").answer_rows([ROW])
        assert 0 < np.abs(rounded.logits - exact.logits).max() < 0.5
        assert model.dtype == torch.float32, "the model was cast under its owner's hands"
