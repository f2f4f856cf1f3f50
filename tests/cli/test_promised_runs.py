"""A promise is of the precision and the length it was made with: what each command says of it elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from offramp.calibration.certificate import read_certificate
from offramp.engine import processor
from offramp.evaluation.run import place_for
from tests.cli.test_calibrate import LOSS, Run, home, made

__all__ = ["home", "made"]  # fixtures


def skip_without(precision: str) -> None:
    if precision == "bf16" and not processor.works("bf16"):
        pytest.skip("this processor has no bf16")


@pytest.mark.parametrize(
    ("precision", "length", "then", "now", "options"),
    [
        ("bf16", 32, "in fp32", "in bf16", "--precision bf16"),
        ("auto", 16, "at 32 tokens", "at 16 tokens", "--max-length 16"),
        ("bf16", 16, "in fp32 at 32 tokens", "in bf16 at 16 tokens", "--precision bf16 --max-length 16"),
        ("fp32", 32, "", "", ""),
    ],
)
def test_a_promise_is_of_the_precision_and_the_length_it_was_made_with(
    run: Run, home: Path, precision: str, length: int, then: str, now: str, options: str
) -> None:
    skip_without(precision)
    model = home / "model"
    assert run("calibrate", model, *LOSS, "--max-length", "32").status == 0
    found = read_certificate(model)
    assert (found.data["precision"], found.data["max_length"]) == ("fp32", 32)
    how = ("--device", "cpu", "--precision", precision, "--max-length", str(length))
    done = run("predict", model, "a fine film", *how)
    assert (done.status, done.err.count("\n")) == (0, 1), done.err
    promised = f"under {found.policy}: {found.promise}\n"
    nothing = (
        f"under {found.policy}: its promise was made {then}, and nothing is promised {now}; to certify it: "
        f"offramp calibrate {model} {options}\n"
    )
    assert done.err == (nothing if then else promised)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_what_is_calibrated_in_a_precision_is_promised_in_it(run: Run, home: Path, precision: str) -> None:
    pytest.importorskip("onnxruntime")
    skip_without(precision)
    model = home / "model"
    done = run("calibrate", model, *LOSS, "--precision", precision)
    assert done.status == 0, done.err
    found = read_certificate(model)
    assert found.data["precision"] == precision
    promised = f"under {found.policy}: {found.promise}"
    assert promised in run("predict", model, "a fine film", "--precision", precision).err
    assert f"made in {precision}, and nothing is promised in fp32" in run("predict", model, "a fine film").err
    quick = ("--rows", "8", "--batch-sizes", "8", "--seconds", "0", "--json")
    assert f"made in {precision}, and" in run("bench", model, *quick, "--precision", "fp32").err


def test_the_weights_own_precision_is_the_same_trace_by_name(run: Run, home: Path) -> None:
    assert run("calibrate", home / "model", *LOSS, "--device", "cpu").status == 0
    again = run("calibrate", home / "model", *LOSS, "--device", "cpu", "--precision", "fp32")
    assert "stored trace" in again.err


@pytest.mark.parametrize(
    ("device", "precision", "asked"), [("auto", "int8", "cpu"), ("auto", None, "auto"), ("cuda", "int8", "cuda")]
)
def test_int8_is_calibrated_on_the_cpu_of_a_machine_with_a_gpu(
    device: str, precision: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.evaluation.run.find_device", lambda name: name)
    assert place_for(device, precision) == asked


def test_the_other_precision_that_is_timed_is_promised_nothing(run: Run, home: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert run("calibrate", home / "model", *LOSS).status == 0
    found = read_certificate(home / "model")
    done = run("bench", home / "model", "--rows", "8", "--batch-sizes", "8", "--seconds", "0", "--device", "cpu")
    assert f"{found.promise}, in fp32; nothing is promised in int8\n" in done.err


@pytest.mark.parametrize(("precision", "said"), [("fp32", "at most 5 %"), ("int8", "nothing is promised in int8")])
def test_what_is_promised_of_an_exported_model(run: Run, home: Path, precision: str, said: str) -> None:
    pytest.importorskip("onnx")
    assert run("calibrate", home / "model", *LOSS).status == 0
    done = run("export", home / "model", home / "exported", "--precision", precision)
    assert done.status == 0, done.err
    assert said in done.err
    policy = ("--policy", "entropy(0.1)", "--overwrite")
    assert said not in run("export", home / "model", home / "exported", "--precision", precision, *policy).err
