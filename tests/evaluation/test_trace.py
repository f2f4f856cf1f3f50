"""The trace: one pass, and everything computed from it is what a live run gives."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from offramp import OfframpError
from offramp.evaluation import Trace, exit_logits
from offramp.policies import REGISTRY, Confidence, Entropy, Fixed, Patience, RuledOut, Threshold, first_exit
from tests.evaluation.made_traces import ENCODER, batch_of, random_rows, random_trace, trace_of
from tests.tiny import FAMILIES, tiny_model


@pytest.mark.parametrize("classes", [3, 2, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_offline_is_live(family: str, classes: int) -> None:
    """Every policy, at a sample of its candidates: the same exits and the same answers as the model itself."""
    model, rows = tiny_model(family, num_labels=classes), random_rows()
    trace = trace_of(model, rows, batch_size=5)
    tried = 0
    for rule in REGISTRY.values():
        if trace.kind not in rule.tasks:
            continue
        for policy in rule.candidates(trace.tensor, trace.exit_layers, trace.kind)[::4]:
            live, exits = model.answer(policy, **batch_of(rows)), trace.exits(policy)
            assert live.exit.tolist() == exits.tolist(), policy
            np.testing.assert_allclose(trace.logits[exits, range(len(rows))], live.logits, atol=1e-4)
            tried += 1
    assert tried >= (10 if classes > 1 else 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_batched_is_one_at_a_time_in_the_order_given(family: str) -> None:
    model, rows = tiny_model(family), random_rows(17)
    whole = exit_logits(model, rows, ENCODER, batch_size=4)
    assert whole.shape == (4, 17, 3)
    for number, row in enumerate(rows):
        alone = exit_logits(model, [row], ENCODER)[:, 0]
        np.testing.assert_allclose(whole[:, number], alone, atol=1e-4)


def test_the_model_is_left_as_it_was() -> None:
    model = tiny_model()
    model.train()
    first, second = (exit_logits(model, random_rows(), ENCODER) for _ in range(2))
    assert model.training
    assert np.array_equal(first, second), "dropout was on"
    assert all(parameter.grad is None for parameter in model.parameters())


def test_progress_and_precision() -> None:
    told: list[tuple[int, int]] = []
    model, rows = tiny_model(), random_rows(10)
    trace = trace_of(model, rows, batch_size=4, precision="bf16", on_rows=lambda *seen: told.append(seen))
    assert told == [(10, 10)]
    trace_of(model, random_rows(100), on_rows=lambda *seen: told.append(seen))
    assert told[1:] == [(64, 100), (100, 100)]
    assert trace.precision == "bf16"
    exact = trace_of(model, rows)
    assert exact.precision == "fp32"
    difference = np.abs(trace.logits - exact.logits).max()
    assert 0 < difference < 0.5
    with pytest.raises(OfframpError, match="precision 'int4': use auto, fp32, bf16, fp16, int8"):
        trace_of(model, rows, precision="int4")


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("classes", [3, 1])
def test_save_and_load(classes: int, labelled: bool, tmp_path: Path) -> None:
    trace = random_trace(classes=classes, labelled=labelled, recipe="romebert", versions={"torch": "2"})
    again = Trace.load(trace.save(tmp_path / "new" / "trace.npz"))
    for field in dataclasses.fields(Trace):
        ours, theirs = getattr(trace, field.name), getattr(again, field.name)
        assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs, field.name
    assert again.results() == trace.results()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["trace.npz"]


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    whole = random_trace().save(tmp_path / "trace.npz")
    (tmp_path / "half.npz").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "foreign.npz", logits=np.zeros((2, 3, 2)))
    np.savez(tmp_path / "pickle.npz", about=np.array([{"a": 1}], dtype=object))
    for name in ("half", "text", "empty", "foreign", "pickle"):
        with pytest.raises(OfframpError, match=f"{name}.npz is no trace of offramp evaluate") as refused:
            Trace.load(tmp_path / f"{name}.npz")
        assert "\n" not in str(refused.value)
    with pytest.raises(OfframpError, match="there is no trace"):
        Trace.load(tmp_path / "missing.npz")


def test_shapes_must_fit() -> None:
    with pytest.raises(OfframpError, match="needs logits of that shape"):
        random_trace(exit_layers=(1, 2))
    with pytest.raises(OfframpError, match="3 labels for 120 samples"):
        random_trace(labels=np.zeros(3))


def test_a_point_counts_what_happened() -> None:
    trace = random_trace(exits=4)
    point = trace.point("entropy(0.4)")
    exits = trace.exits(Entropy(0.4))
    layers = exits + 1
    answers = trace.logits[exits, range(len(trace))].argmax(-1)
    assert point.scores == {"accuracy": (answers == trace.labels).mean()}
    assert point.mean_layers == layers.mean()
    assert (point.cost, point.speed_up) == (layers.mean() / 4, pytest.approx(4 / layers.mean()))
    assert point.exits == {layer: int((layers == layer).sum()) for layer in (1, 2, 3, 4)}
    assert point.agreement == (answers == trace.logits[-1].argmax(-1)).mean()
    counted = [2e-6 * trace.shape.elue_macs(int(n), int(k), int(k)) for n, k in zip(trace.lengths, layers, strict=True)]
    assert point.mflops == pytest.approx(np.mean(counted))
    assert trace.point(Fixed(4)).agreement == 1.0


@pytest.mark.parametrize(
    "policy",
    [
        Entropy(0.31, temperature=1.7),
        Entropy((0.1, 0.9, 0.2, 0.4, 0.3, 0.0), normalised=True),
        Confidence(0.8, temperature=(1.0, 0.5, 2.0, 1.0, 3.0, 1.0)),
        RuledOut(0.05),
    ],
    ids=str,
)
def test_signals_that_are_kept_decide_the_same(policy: Threshold) -> None:
    trace = random_trace(classes=3)
    logits = trace.logits.copy()
    logits[1, 3] = np.nan  # never leaves there
    trace = dataclasses.replace(trace, logits=logits)
    for one in (policy, dataclasses.replace(policy, threshold=0.5)):
        expected = first_exit(one, trace.tensor, trace.exit_layers).numpy()
        assert len(set(expected)) > 2 or one != policy
        np.testing.assert_array_equal(trace.exits(one), expected)


@pytest.mark.parametrize("classes", [1, 3])
def test_some_rows_of_a_trace(classes: int) -> None:
    trace, rows = random_trace(classes=classes), np.array([7, 3, 90, 4])
    some, policy = trace.take(rows), "patience(2, tolerance=0.9)"
    np.testing.assert_array_equal(some.exits(policy), trace.exits(policy)[rows])
    np.testing.assert_array_equal(some.mflops, trace.mflops[:, rows])
    np.testing.assert_array_equal(some.same_at(some.all_at(2), 0.5), trace.same_at(trace.all_at(2), 0.5)[rows])
    if classes > 1:
        np.testing.assert_array_equal(some.right_at(None), trace.right_at(trace.all_at(5))[rows])
    else:
        with pytest.raises(OfframpError, match="no labels to say what is right"):
            some.right_at(None)


def test_full_depth_of_another_trace() -> None:
    """As with other gates: what is lost is lost against the other's last exit."""
    trace = random_trace(labelled=True)
    other = dataclasses.replace(trace, logits=-trace.logits)
    compared = other.compared_with(trace)
    assert not compared.same_at(compared.all_at(5)).any()
    np.testing.assert_array_equal(compared.right_at(None), trace.right_at(trace.all_at(5)))
    np.testing.assert_array_equal(compared.take(np.array([5, 2])).full_depth, trace.full_depth[[5, 2]])


def test_regression() -> None:
    trace = random_trace(classes=1)
    results = trace.results(Patience(2, 0.5))
    assert {sweep.name for sweep in results.sweeps} == {"fixed", "patience"}
    assert results.full_depth.agreement == 1.0
    assert 0 < results.exits[0].agreement < 1
    with pytest.raises(OfframpError, match="entropy makes no sense for regression"):
        trace.point("entropy(0.1)")


def test_without_labels() -> None:
    results = random_trace(labelled=False).results()
    assert results.full_depth.scores == {}
    assert all(sweep.area is None and sweep.elue is None for sweep in results.sweeps)
    assert results.pareto[-1].agreement == 1.0


def test_results_and_their_sweeps() -> None:
    trace = random_trace(model="runs/mine", recipe="romebert")
    results = trace.results("entropy(0.1)", published=True)
    assert results.name == "romebert mine"
    assert results.point == trace.point("entropy(0.1)")
    names = [sweep.name for sweep in results.sweeps]
    assert names == sorted(names)
    assert {"entropy", "entropy | window", "entropy, published", "patience", "window", "fixed"} <= set(names)
    for sweep in results.sweeps:
        assert [point.cost for point in sweep.points] == sorted(point.cost for point in sweep.points)
    entropy = trace.sweep("entropy")
    assert entropy == trace.sweep(Entropy)
    assert entropy.points[0].cost == pytest.approx(1 / 6)
    assert entropy.points[-1].cost == 1.0
    assert len(trace.sweep("entropy", ["entropy(0.1)", Entropy(0.1001)]).points) == 2
    with pytest.raises(OfframpError, match="unknown policy 'entrpy'"):
        trace.sweep("entrpy")


def test_a_sweep_can_be_looked_at() -> None:
    pytest.importorskip("matplotlib")
    sweep = random_trace().sweep(Entropy)
    assert sweep.table().row_count == len(sweep.points)
    assert sweep.plot() is not None


def test_settings_that_decide_the_same_are_kept_once() -> None:
    trace = random_trace(samples=3)
    decided = [tuple(trace.exits(point.policy)) for point in trace.sweep("window").points]
    assert len(set(decided)) == len(decided)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_gpu_says_the_same() -> None:
    model, rows = tiny_model(), random_rows()
    on_cpu, on_gpu = (trace_of(model, rows, device=device) for device in ("cpu", "cuda"))
    assert model.device.type == "cpu"
    np.testing.assert_allclose(on_gpu.logits, on_cpu.logits, atol=1e-3)
