"""What the doctor finds, with machines and libraries made up; and that no look can hinder another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from offramp import shipped
from offramp.doctor import Finding, choices, examine, instructions, libraries, machine, places
from offramp.doctor.examination import LOOKS
from offramp.engine import processor
from offramp.engine.backends import choose
from offramp.errors import OfframpError
from tests.tiny import tiny_model

Patch = pytest.MonkeyPatch


def only(look: Callable[[], Iterator[Finding]]) -> Finding:
    [found] = look()
    return found


def test_each_look_fails_alone(monkeypatch: Patch) -> None:
    def fails() -> Iterator[Finding]:
        raise RuntimeError("the sensor\nis not there")

    def says() -> Iterator[Finding]:
        yield Finding("machine", "weather", "fine")

    told: list[str] = []
    found = examine(told.append, (("machine", "sensor", fails), ("machine", "weather", says)))
    assert told == ["sensor", "weather"]
    assert [one.state for one in found.findings] == ["unknown", "fine"]
    assert found.findings[0].value == "could not be found out (RuntimeError: the sensor is not there)"
    assert not found.broken


@pytest.mark.parametrize("missing", ["psutil", "packaging.requirements", "huggingface_hub", "torch"])
def test_a_missing_library_leaves_a_gap_and_no_more(missing: str, monkeypatch: Patch, tmp_path: Path) -> None:
    """Whichever it is: the looks that do without it say what they say."""
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(libraries, "failures", lambda: {"torch": "gone"} if missing == "torch" else {})
    monkeypatch.setattr(shipped, "BOX", tmp_path)
    quick = tuple(one for one in LOOKS if one[2] not in (instructions.bf16, instructions.int8))
    found = examine(looks=quick).findings
    assert {"system", "Python"} <= {one.name for one in found if one.state == "fine"}
    assert any(one.state in ("unknown", "broken") for one in found)


@pytest.mark.parametrize(
    ("quota", "allowed", "expected", "state"),
    [
        (None, 4, "4 may be used, of 8", "fine"),
        ("max 100000", 8, "8 may be used", "fine"),
        ("150000 100000", 8, "1.5 may be used, of 8", "could be better"),
        ("400000 100000", 1, "1 may be used, of 8", "could be better"),
        ("nonsense", 8, "8 may be used", "fine"),
    ],
)
def test_cores_are_those_that_may_be_used(
    quota: str | None, allowed: int, expected: str, state: str, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(allowed)), raising=False)
    if quota:
        (tmp_path / "cpu.max").write_text(quota)
    found = only(machine.cores)
    assert (found.value, found.state) == (expected, state)


@pytest.mark.parametrize(("free", "state"), [(1e9, "could be better"), (9e9, "fine")])
def test_memory_is_that_of_the_container(free: float, state: str, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "GROUP", tmp_path)
    (tmp_path / "memory.max").write_text(str(int(10e9)))
    (tmp_path / "memory.current").write_text(str(int(10e9 - free)))
    about = SimpleNamespace(total=int(64e9), available=int(60e9))
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(virtual_memory=lambda: about))
    found = only(machine.memory)
    assert found.value == f"10.0 GB, {free / 1e9:.1f} GB of them free"
    assert found.state == state


@pytest.mark.parametrize(
    ("works", "expected", "advice"),
    [
        ({"bf16": True}, "works", ""),
        ({"bf16": False, "bf16 capped": True}, "works without AMX", f"{processor.CAP}={processor.CAPPED}"),
        ({"bf16": False, "bf16 capped": False}, "ends the process", ""),
    ],
)
def test_amx_that_lies(works: dict[str, bool], expected: str, advice: str, monkeypatch: Patch) -> None:
    """What is said comes from the try that the engine itself makes."""
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(processor, "works", lambda precision, capped=False: works[precision + " capped" * capped])
    found = only(instructions.bf16)
    assert found.value.startswith(expected)
    assert advice in found.advice
    assert bool(advice) == (found.state == "could be better")


@pytest.mark.parametrize("flags", ["fpu avx2 avx512f amx_bf16", "fpu sse4_2", ""])
def test_instruction_sets_that_are_named(flags: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    lines = ("model name\t: A Processor", f"flags\t\t: {flags}") if flags else ()
    monkeypatch.setattr(processor, "processor_lines", lambda: lines)
    found = {one.name: one for one in instructions.named()}
    assert not flags or found["processor"].value == "A Processor"
    assert ("instructions" in found) == ("avx2" in flags)
    assert ("AVX2" in found) == (bool(flags) and "avx2" not in flags)
    if "avx2" in flags:
        assert found["instructions"].value == "avx2, avx512f, amx_bf16"


def test_int8_without_its_library(monkeypatch: Patch) -> None:
    def cannot(precision: str) -> bool:
        raise OfframpError("int8 could not be tried")

    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(processor, "works", cannot)
    assert only(instructions.int8).value == "not tried: int8 could not be tried"


REQUIRED = ["torch>=2", "numpy>=1", 'onnx>=1; extra == "onnx"', 'onnxruntime>=1; extra == "onnx"', "x; extra == 'dev'"]


@pytest.mark.parametrize(
    ("versions", "states"),
    [
        ({"torch": "2.1", "numpy": "2", "onnx": "1.1", "onnxruntime": "1.2"}, {}),
        ({"torch": "1.9", "numpy": "2", "onnx": "1.1", "onnxruntime": "1.2"}, {"torch": "broken"}),
        ({"torch": "2.1", "onnx": "1.1", "onnxruntime": "1.2"}, {"numpy": "broken"}),
        ({"torch": "2.1", "numpy": "2", "onnx": "1.1"}, {"onnx": "could be better"}),
        ({"torch": "2.1", "numpy": "2", "onnx": "0.9", "onnxruntime": "1.2"}, {"onnx": "broken"}),
    ],
)
def test_libraries_against_what_is_asked_for(
    versions: dict[str, str], states: dict[str, str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(libraries, "installed", versions.get)
    monkeypatch.setattr(libraries, "EXTRAS", {"onnx": "faster answers"})
    monkeypatch.setattr("importlib.metadata.requires", lambda name: REQUIRED)
    found = [*libraries.needed(), *libraries.extras()]
    assert {one.name: one.state for one in found if one.state != "fine"} == states
    assert "x" not in {one.name for one in found}
    for one in found:
        if one.state == "could be better":
            assert (one.value, one.advice) == ("onnxruntime missing", "faster answers: pip install 'offramp[onnx]'")
        if one.state == "broken":
            assert one.advice.startswith(f"pip install '{one.name}>=")


def test_every_extra_is_known() -> None:
    """That of pyproject.toml, but for developers'."""
    told = libraries.metadata.metadata("offramp").get_all("Provides-Extra") or []
    assert set(libraries.EXTRAS) == {extra for extra in told if extra not in ("dev", "docs", "fuzz")}


@pytest.mark.parametrize("ending", ["raise ImportError('made for another machine')", "import os; os.abort()"])
def test_a_library_that_ends_the_process(ending: str, tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "torchless.py").write_text(ending)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(libraries, "TRIED", ("json", "torchless"))
    libraries.failures.cache_clear()
    try:
        found = only(libraries.loading)
    finally:
        libraries.failures.cache_clear()
    assert (found.name, found.state) == ("import torchless", "broken")
    assert "made for another machine" in found.value or "ended with" in found.value


def test_what_is_used_is_what_the_engine_chooses(monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    asked: list[tuple[Any, ...]] = []

    def chosen(*wishes: Any) -> Any:
        asked.append(wishes[1:])
        return choose(*wishes)

    monkeypatch.setattr("offramp.engine.backends.choose", chosen)
    found = list(choices.settings())
    assert [one.name for one in found] == [f"for a model like {name}" for name in choices.SIZES]
    assert asked == [("auto", "auto", "auto", None)] * 2


def test_a_faster_backend_that_is_missing_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("offramp.engine.backends.find_spec", lambda name: None)
    for found in choices.settings():
        assert found.value == "cpu, fp32, torch"
        assert "pip install 'offramp[onnx]'" in found.advice


@pytest.mark.parametrize(
    ("threads", "cores", "environment", "advice"),
    [
        (2, 2, None, ""),
        (8, 2, None, "--threads 2, or OMP_NUM_THREADS=2"),
        (8, 0.5, None, "--threads 1, or OMP_NUM_THREADS=1"),
        (1, 4, "1", "OMP_NUM_THREADS=1 leaves cores idle"),
        (1, 4, None, ""),
    ],
)
def test_threads_against_cores(
    threads: int, cores: float, environment: str | None, advice: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(choices, "usable_cores", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if environment:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    found = only(choices.threads)
    assert found.advice.startswith(advice)
    assert bool(advice) == bool(found.advice)


@pytest.mark.parametrize(("cuda", "driver"), [(None, "nvidia-smi"), (None, None), ("13.0", "nvidia-smi")])
def test_a_gpu_that_torch_cannot_use(cuda: str | None, driver: str | None, monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr("shutil.which", lambda name: driver)
    found = only(choices.graphics)
    assert ("a torch made with CUDA" in found.advice) == (cuda is None and driver is not None)


def test_gpus(monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    about = SimpleNamespace(name="A GPU", major=9, minor=0)
    for name, answer in (("is_available", True), ("device_count", 2), ("is_bf16_supported", True)):
        monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: about)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (int(20e9), int(80e9)))
    first, second = choices.graphics()
    assert first.value == "A GPU, 80.0 GB, 20.0 GB of them free, compute capability 9.0, bf16"
    assert (first.name, second.name) == ("GPU 0", "GPU 1")


def test_models_in_the_box(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(libraries, "failures", dict)
    monkeypatch.setattr(shipped, "BOX", tmp_path)
    assert only(places.models).state == "could be better"
    for name in ("offramp-cut", "offramp-whole"):
        tiny_model().save_pretrained(tmp_path / name)
    (tmp_path / "offramp-cut" / "model.safetensors").write_bytes(b"")
    cut, whole = places.models()
    assert (cut.name, cut.state, cut.advice) == ("offramp-cut", "broken", "install offramp again")
    assert "model.safetensors is damaged" in cut.value
    assert whole.value.startswith("opens and answers (4 layers; ")


def test_folders_that_can_be_written_to(tmp_path: Path) -> None:
    fine = places.writable("downloads", tmp_path / "not" / "yet", "x")
    assert fine.state == "fine"
    assert not (tmp_path / "not").exists()
    refused = places.writable("downloads", Path("/proc/nothing/here"), "hub names cannot be opened")
    assert refused.state == "could be better"
    assert "hub names cannot be opened" in refused.advice
